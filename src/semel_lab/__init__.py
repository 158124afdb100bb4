"""What proves semel: the simulator, the conformance tester and the terminal demo.

Nothing in `semel` imports this package; the command line finds its commands by entry point.
"""
