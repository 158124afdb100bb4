"""The financial system as a process: it books payments. `python -m examples.hospital.outside.books --fd 3`."""

from examples.hospital.outside.app import serve_system

if __name__ == "__main__":
    serve_system("examples.hospital.outside.books", {"postings": "B"})
