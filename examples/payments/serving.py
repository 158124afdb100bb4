"""One server process: `python -m examples.payments.serving --fd 3`, on a socket that whoever started it listens on."""

from examples.launching.serving import serve
from examples.payments.app import make_app
from examples.payments.settings import Settings

if __name__ == "__main__":
    serve("examples.payments.serving", lambda: make_app(Settings.from_environment()))
