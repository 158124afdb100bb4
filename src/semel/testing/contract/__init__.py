"""The contract: what every store keeps, as a suite of tests to run on yours. It needs pytest, and one fixture.

    import pytest
    from semel.testing.contract import StoreContract

    class TestMyStore(StoreContract):
        @pytest.fixture
        def make_store(self, clock, tmp_path):
            return lambda: MyStore(tmp_path / "records", clock=clock.store_clock)

`make_store` returns a function. Each time that is called within one test it gives a store on the same records, empty
when the test begins: two stores so made play two processes. A store that cannot be had twice may be given twice. The
store takes its time from `clock.store_clock` (microseconds since 1970), so that no test ever waits for real.

Every scenario runs through `Semel` in threads and through `AsyncSemel` on an event loop, and in both it is called by
`run` and through decorated functions: the fixtures `colour` and `call_style`. A store with only one driver narrows one:

        @pytest.fixture(params=["async"])
        def colour(self, request):
            return request.param

A store that can stand behind a cache inherits from `InvalidationContract` too, and one that keeps dead letters of
consumers of events (`Capability.LETTERS`) from `LetterContract`. One that keeps events which relays publish
(`Capability.OUTBOX`) inherits from `OutboxContract`, one that keeps batches (`Capability.BATCH`) from
`BatchContract`, and one with an audit chain (`Capability.AUDIT`) from `AuditContract`.

A scenario that a store is known to break can be overridden by its name, which then says so in public.
"""

from __future__ import annotations

from semel.extras import requires

with requires("semel.testing.contract", "pytest"):
    import pytest

# Before the topics are imported: their assertions shall explain themselves as those of any test do.
pytest.register_assert_rewrite("semel.testing.contract.topics")

from semel.testing.contract.topics.administration import (
    CapabilityContract,
    RecordsContract,
    SweepContract,
    SweepingReconcileContract,
)
from semel.testing.contract.topics.audit import AuditContract
from semel.testing.contract.topics.batch import BatchContract
from semel.testing.contract.topics.cancelling import CancellationContract
from semel.testing.contract.topics.claims import (
    ClaimContract,
    ConcurrencyContract,
    FingerprintContract,
    KeepingContract,
    NestingContract,
)
from semel.testing.contract.topics.doubts import (
    CorrectingContract,
    ForcingContract,
    HoldContract,
    ReconcileContract,
    ReopeningContract,
    ResolvingContract,
    SeenContract,
)
from semel.testing.contract.topics.erasing import CachePurgeContract, ErasingContract, InvalidationContract
from semel.testing.contract.topics.failures import (
    AttemptContract,
    CountingContract,
    FailureContract,
    LostReplyContract,
    RefusalContract,
)
from semel.testing.contract.topics.fingerprints import FingerprintChangeContract, SecretContract
from semel.testing.contract.topics.history import HistoryContract, HistoryOfCallsContract, HolderContract
from semel.testing.contract.topics.leases import (
    LateWriteContract,
    LeaseContract,
    RenewalContract,
    StallContract,
    ZombieContract,
)
from semel.testing.contract.topics.letters import LetterContract
from semel.testing.contract.topics.operations import InputContract, ListContract, OperationContract
from semel.testing.contract.topics.outbox import OutboxContract
from semel.testing.contract.topics.replays import ReplayContract, TombstoneContract, ValueContract, VersionContract
from semel.testing.contract.topics.searching import CountsContract, SearchContract, StuckContract
from semel.testing.contract.topics.steps import DeriveContract, StepContract
from semel.testing.contract.topics.subjects import SubjectErasureContract
from semel.testing.contract.topics.waiting import (
    CrowdContract,
    HandlerLimitContract,
    PromotionContract,
    WaitingContract,
)
from semel.testing.contract.world import MakeStore

__all__ = [
    "AuditContract",
    "BatchContract",
    "InvalidationContract",
    "LetterContract",
    "MakeStore",
    "OutboxContract",
    "StoreContract",
]


class StoreContract(
    OperationContract,
    ListContract,
    ClaimContract,
    FingerprintContract,
    FingerprintChangeContract,
    SecretContract,
    KeepingContract,
    ReplayContract,
    TombstoneContract,
    VersionContract,
    ValueContract,
    FailureContract,
    AttemptContract,
    CountingContract,
    LeaseContract,
    RenewalContract,
    StallContract,
    LateWriteContract,
    ZombieContract,
    WaitingContract,
    CrowdContract,
    HandlerLimitContract,
    PromotionContract,
    ConcurrencyContract,
    NestingContract,
    HoldContract,
    ResolvingContract,
    SeenContract,
    CorrectingContract,
    ReopeningContract,
    ForcingContract,
    ReconcileContract,
    StepContract,
    DeriveContract,
    CancellationContract,
    LostReplyContract,
    RefusalContract,
    RecordsContract,
    SearchContract,
    StuckContract,
    CountsContract,
    SweepContract,
    SweepingReconcileContract,
    ErasingContract,
    SubjectErasureContract,
    CachePurgeContract,
    HistoryContract,
    HolderContract,
    HistoryOfCallsContract,
    CapabilityContract,
    InputContract,
):
    """All topics. Inherit from it under a name that begins with `Test`, and override `make_store`."""
