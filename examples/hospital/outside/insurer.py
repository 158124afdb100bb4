"""The insurer as a process: it takes claims and appeals. `python -m examples.hospital.outside.insurer --fd 3`."""

from examples.hospital.outside.app import serve_system

if __name__ == "__main__":
    serve_system("examples.hospital.outside.insurer", {"claims": "P", "appeals": "A"})
