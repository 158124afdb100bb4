"""What a state machine draws from: few keys and mostly equal terms, so that its steps meet each other."""

from hypothesis import strategies as st

from semel.core.key import Key
from semel.core.operations import Terms
from semel.core.record import About, Failure

KEYS = [Key.of("one", operation="charge"), Key.of("one", operation="refund"), Key.of("two", operation="charge")]
SECOND = 1_000_000
START = 1_900_000_000 * SECOND

keys = st.sampled_from(KEYS)
# Mostly equal, so that sequences get beyond the first quarrel.
fingerprints = st.sampled_from([b"asked this"] * 4 + [b"asked that"])
terms = st.builds(
    Terms,
    lease_us=st.sampled_from([SECOND, 3 * SECOND]),
    keep_us=st.sampled_from([4 * SECOND, 60 * SECOND]),
    in_doubt=st.sampled_from(["rerun"] * 5 + ["reconcile"] * 2 + ["hold"]),
    reconcile_after_us=st.sampled_from([0, 2 * SECOND, 30 * SECOND]),
)
abouts = st.builds(About, business_key=st.sampled_from([None, "b-1", "ü-2"]))
errors = st.builds(Failure, st.sampled_from(["app.Refused", "app.Down"]), st.sampled_from(["", "no", "nö \udc80"[:2]]))
limits = st.integers(1, 3)
