"""Finding better annotations by trying them: the whole pipeline in a loop."""

from hlosharding.search.mutations import Improved, spec_text
from hlosharding.search.plan_files import apply_plan, schedule_of
from hlosharding.search.plan_runs import OneProcess, PlanRunner
from hlosharding.search.plan_search import SearchResult, search
from hlosharding.search.plan_space import MICROBATCHES, plan_space
from hlosharding.search.planner import Planner
from hlosharding.search.plans import Plan, SizedPlan
from hlosharding.search.priced_plan import PricedPlan
from hlosharding.search.ranking import RankedPlan, Ranking, rank, sample_plans
from hlosharding.search.searchers import Climb, Grid, InterOp, Searcher, SearchSpace
from hlosharding.search.strategies import STRATEGIES, Strategy, fsdp, megatron
from hlosharding.search.suggest import Suggestion, suggest
from hlosharding.search.trials import smallest_sets

__all__ = [
    "MICROBATCHES",
    "STRATEGIES",
    "Climb",
    "Grid",
    "Improved",
    "InterOp",
    "OneProcess",
    "Plan",
    "PlanRunner",
    "Planner",
    "PricedPlan",
    "RankedPlan",
    "Ranking",
    "SearchResult",
    "SearchSpace",
    "Searcher",
    "SizedPlan",
    "Strategy",
    "Suggestion",
    "apply_plan",
    "fsdp",
    "megatron",
    "plan_space",
    "rank",
    "sample_plans",
    "schedule_of",
    "search",
    "smallest_sets",
    "spec_text",
    "suggest",
]
