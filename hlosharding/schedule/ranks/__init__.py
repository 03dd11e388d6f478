"""What each device does of a schedule: its own steps, run together with all others, or alone on one device."""

from hlosharding.schedule.ranks.alone import RankRun
from hlosharding.schedule.ranks.projection import rank_programs
from hlosharding.schedule.ranks.rank_program import RankProgram
from hlosharding.schedule.ranks.runs import run_ranks

__all__ = ["RankProgram", "RankRun", "rank_programs", "run_ranks"]
