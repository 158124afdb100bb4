"""What a result tells of its run."""

from semel import Semel


def test_why_a_value_was_not_kept_is_told_with_the_result() -> None:
    with Semel("memory://") as semel:
        result = semel.run("o-1", object, operation="pay", fingerprint=None)
        assert "object" in str(result.why_not_kept())
        assert semel.run("o-2", lambda: 1, operation="pay", fingerprint=None).why_not_kept() is None
