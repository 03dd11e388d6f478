"""Finding better annotations by trying them: the whole pipeline in a loop."""

from hlosharding.search.candidates import nearest_split
from hlosharding.search.comparison import RunnerUp
from hlosharding.search.mutations import Improved, spec_text
from hlosharding.search.optimum import Optimum, find_optimum
from hlosharding.search.plan_files import apply_plan, schedule_of
from hlosharding.search.plan_runs import OneProcess, PlanRunner
from hlosharding.search.plan_search import SearchResult, search
from hlosharding.search.plan_space import MICROBATCHES, plan_space
from hlosharding.search.planner import Planner
from hlosharding.search.plans import Plan, SizedPlan
from hlosharding.search.present import Present, argument_path
from hlosharding.search.priced_plan import PricedPlan, pareto
from hlosharding.search.ranking import RankedPlan, Ranking, rank, sample_plans
from hlosharding.search.searchers import Climb, Grid, InterOp, Searcher, SearchSpace
from hlosharding.search.strategies import STRATEGIES, Strategy, fsdp, megatron
from hlosharding.search.suggest import suggest
from hlosharding.search.suggestion import Suggestion
from hlosharding.search.trials import smallest_sets
from hlosharding.search.what_if import WhatIf, of_memory

__all__ = [
    "MICROBATCHES",
    "STRATEGIES",
    "Climb",
    "Grid",
    "Improved",
    "InterOp",
    "OneProcess",
    "Optimum",
    "Plan",
    "PlanRunner",
    "Planner",
    "Present",
    "PricedPlan",
    "RankedPlan",
    "Ranking",
    "RunnerUp",
    "SearchResult",
    "SearchSpace",
    "Searcher",
    "SizedPlan",
    "Strategy",
    "Suggestion",
    "WhatIf",
    "apply_plan",
    "argument_path",
    "find_optimum",
    "fsdp",
    "megatron",
    "nearest_split",
    "of_memory",
    "pareto",
    "plan_space",
    "rank",
    "sample_plans",
    "schedule_of",
    "search",
    "smallest_sets",
    "spec_text",
    "suggest",
]
