"""Arrays from one mesh to another: who sends what to whom, at the least bytes, with no link busier than must be."""

from hlosharding.transfer.transfer_plan import Moved, TransferPlan, plan_transfer

__all__ = ["Moved", "TransferPlan", "plan_transfer"]
