"""A server that is not ended and started again, but only cut off: its clients lose all their connections."""

from tests.proxy.proxy import Proxy
from tests.servers.databases import Endpoint


class CutOff:
    """What a proxy leads to, with an end that lasts for a moment."""

    how = "cuts of all connections to a"

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self.endpoint = Endpoint(proxy.url)

    def kill(self) -> None:
        """End every connection; what was sent may or may not have arrived."""
        self._proxy.sever()

    def start(self) -> None:
        """End what was opened meanwhile; from now on it is reached again."""
        self._proxy.sever()
