"""The console: pages for operators, rendered on the server and readable without JavaScript.

- A page asks nothing that `semel.server.actions` does not permit, and changes nothing by any other way.
- What others have written is text, whatever it looks like.
"""

from semel.server.console.app import console_app

__all__ = ["console_app"]
