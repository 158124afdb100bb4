"""x"""
# ruff: noqa: E402
import pytest

pytest.register_assert_rewrite("semel.testing.contract.topics")

from semel.testing.contract.topics.claims import ClaimContract, FingerprintContract, KeepingContract
from semel.testing.contract.topics.replays import ReplayContract, TombstoneContract, VersionContract
from semel.testing.contract.topics.failures import FailureContract, AttemptContract
from semel.testing.contract.topics.leases import LeaseContract, RenewalContract
from semel.testing.contract.topics.zombies import LateWriteContract, ZombieContract
from semel.testing.contract.topics.waiting import WaitingContract, PromotionContract
from semel.testing.contract.topics.concurrency import ConcurrencyContract, NestingContract
from semel.testing.contract.topics.doubts import HoldContract, ResolvingContract
from semel.testing.contract.topics.reconciling import ReconcileContract
from semel.testing.contract.topics.steps import StepContract, DeriveContract
from semel.testing.contract.topics.cancelling import CancellationContract
from semel.testing.contract.topics.administration import RecordsContract, SweepContract
from semel.testing.contract.topics.sweeping import SweepingReconcileContract
from semel.testing.contract.topics.faults import LostReplyContract, RefusalContract
from semel.testing.contract.topics.inputs import InputContract
from semel.testing.contract.topics.operations import OperationContract
from semel.testing.contract.world import MakeStore as MakeStore


class StoreContract(ClaimContract, FingerprintContract, KeepingContract, ReplayContract, TombstoneContract, VersionContract,FailureContract, AttemptContract,LeaseContract, RenewalContract,LateWriteContract, ZombieContract,
WaitingContract, PromotionContract,ConcurrencyContract, NestingContract,HoldContract, ResolvingContract,ReconcileContract, StepContract, DeriveContract,CancellationContract,RecordsContract, SweepContract,SweepingReconcileContract,LostReplyContract, RefusalContract,InputContract,OperationContract):
    """x"""
