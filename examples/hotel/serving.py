"""One server process: `python -m examples.hotel.serving --fd 3`, on a socket that whoever started it listens on."""

from examples.hotel.app import make_app
from examples.hotel.settings import Settings
from examples.launching.serving import serve

if __name__ == "__main__":
    serve("examples.hotel.serving", lambda: make_app(Settings.from_environment()))
