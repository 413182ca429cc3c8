"""The tenants from which a tenant borrows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.cluster.quota.room import Borrower, lineage
from fallow.shared.cluster.quota.tree import Account, QuotaTree
from fallow.shared.events.operations import Quota
from tests.hypothesis_profile import reaches

GPU_TYPE = "gpu"
TENANTS = [f"tenant-{number}" for number in range(6)]


@st.composite
def trees(draw: st.DrawFn) -> QuotaTree:
    """Tenants below tenants; some have no quota, and some use more than is guaranteed to them."""
    quotas, used = {}, {}
    for number, tenant in enumerate(TENANTS):
        if draw(st.integers(0, 4)):
            parent = draw(st.sampled_from([None, *TENANTS[:number]]))
            guaranteed = draw(st.integers(0, 4))
            quotas[tenant, GPU_TYPE] = Quota(
                tenant=tenant, gpu_type=GPU_TYPE, guaranteed_milli=guaranteed, parent=parent
            )
        used[tenant, GPU_TYPE] = draw(st.integers(0, 5))
    return QuotaTree(quotas, used)


def borrows(tree: QuotaTree, tenant: str, more_milli: int, owner: Account) -> bool:
    """By the words: it fits whole into no guarantee of the tenant, nor of those above that the owner is not below."""
    above_owner = lineage(tree.branches.get(owner))
    own = [each for each in lineage(tree.branches.get((tenant, GPU_TYPE))) if each not in above_owner]
    return not any(each.guaranteed_milli and each.used_milli + more_milli <= each.guaranteed_milli for each in own)


@given(trees(), st.sampled_from(TENANTS), st.integers(0, 3))
def test_a_tenant_borrows_from_an_owner_what_fits_into_nothing_of_its_own(
    tree: QuotaTree, tenant: str, more_milli: int
) -> None:
    borrower = Borrower(tree, tenant, GPU_TYPE, more_milli)
    above = [each.account for each in lineage(tree.branches.get((tenant, GPU_TYPE)))]
    borrowed = {borrows(tree, tenant, more_milli, (each, GPU_TYPE)) for each in TENANTS}
    reaches("a tenant borrows from some owners, and not from others", len(borrowed) > 1)
    assert borrower.above == above
    for owner in [(each, GPU_TYPE) for each in TENANTS]:
        assert borrower.is_below(owner) is (owner in above)
        assert borrower.borrows_from(owner) is borrows(tree, tenant, more_milli, owner)
