"""Modules with shardings as StableHLO in Shardy's words: `sdy.mesh`, `sdy.sharding`, `sdy.sharding_constraint`.

Floor: frontends.  The converse of `to_gspmd`: each sharding becomes Shardy's mark on its instruction, which jaxlib
carries over to StableHLO, where it becomes the attribute or op that it stands for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hlosharding import xla_bridge
from hlosharding.errors import ShardingError
from hlosharding.ir import Instruction, Module, NameUniquer, callers, open_dims_of, rewrite, while_parts
from hlosharding.ir import custom_call_targets as targets
from hlosharding.sharding import (
    DimAxes,
    HloSharding,
    Interchange,
    MeshInfo,
    NamedForm,
    SdySharding,
    memoised,
    write_sdy_sharding,
)

_MARK = targets.SHARDY_PREFIX + "sharding"
_PASSES_ON = frozenset(["tuple", "get-tuple-element", "after-all"])
"""What StableHLO has no op for: several values are that many results."""
_REGION_CALLERS = frozenset(["while", "conditional"])
"""What they call becomes their regions, whose arguments carry no attributes."""


def to_sdy_text(module: Module) -> str:
    """StableHLO text of a module whose shardings are Shardy's: what `jax.export`, Shardy's passes and XLA take.

    Axes are those of the module's mesh, else parts of one axis over all devices; a sharding that neither can say gets a
    mesh of its own.  Of a propagated module every value is annotated.  Raises ShardingError for what
    is not written so: regions with manual axes, which XLA inlined, shard groups, parameters that are tuples.

    >>> import hlosharding as hs
    >>> text = "HloModule m\\nENTRY e {\\n  ROOT x = f32[4] parameter(0), sharding={devices=[2]<=[2]}\\n}"
    >>> print(to_sdy_text(hs.load(text)).splitlines()[1].strip())
    sdy.mesh @mesh = <["devices"=2]>
    """
    _check_names(module.mesh)
    marked = module.clone()
    rewrite.dead_code(marked)
    writer = _SdyWriter(marked, marked.mesh or MeshInfo(("devices",), (max(1, module.num_partitions),)))
    for instruction in list(marked.instructions):
        writer.mark(instruction)
    writer.mark_results()
    marked.shardings = {}
    marked.renumber()
    return xla_bridge.hlo_proto_to_sdy(marked.to_hlo_proto(), module.num_partitions)


def _check_names(mesh: MeshInfo | None) -> None:
    """XLA carries Shardy's texts in attributes, and ends its process on what has to be escaped there twice."""
    for name in mesh.names if mesh is not None else ():
        if "\\" in name or not (name.isascii() and name.isprintable()):
            raise ShardingError(f"axis {name!r} has characters that XLA cannot carry over", remedy="rename it")


class _SdyWriter:
    def __init__(self, module: Module, mesh: MeshInfo) -> None:
        self.module, self.mesh = module, mesh
        sites = callers(module)
        self._regions = {c for c, calls in sites.items() if any(call.opcode in _REGION_CALLERS for call in calls)}

    def mark(self, inst: Instruction) -> None:
        """Say an instruction's sharding as Shardy does."""
        sharding = self.module.sharding(inst) or self._closed(inst)
        if inst.opcode == "custom-call" and inst.custom_call_target in targets.MANUAL_CONVERSIONS:
            raise _unsaid("a region with manual axes", inst)
        if inst.opcode == "parameter" and inst.computation.is_entry and inst.shape.is_tuple:
            raise _unsaid("a parameter that is a tuple", inst)
        if sharding is None or inst.opcode in _PASSES_ON or _may_lose_results(inst):
            return
        if sharding.shard_group is not None:
            raise _unsaid(f"shard group {sharding.shard_group}", inst)
        if inst.opcode == "parameter":
            if inst.computation not in self._regions and inst.shape.is_array:
                self._set(inst, f"#sdy.sharding{self._text(inst, sharding)}")
            return
        if inst.opcode == "copy":  # what propagation leaves of an annotation
            rewrite.change_opcode(inst, "custom-call")
            rewrite.set_attributes(inst, custom_call_target=targets.SHARDING, custom_call_api_version=1)
        self._set(inst, self._per_value(inst, sharding))

    def _closed(self, inst: Instruction) -> HloSharding | None:
        """Of a parameter of the program of which nothing is said: Shardy would take that as open."""
        if inst.opcode != "parameter" or not inst.computation.is_entry:
            return None
        return None if _is_open(self.module.open_parameters, inst.parameter_number) else HloSharding.replicate()

    def mark_results(self) -> None:
        """A call on each result says how it leaves; nothing is said of what is open."""
        entry = self.module.entry
        root, results = entry.root, list(entry.results)
        given = self.module.sharding(root)
        leaves = given.leaves if given is not None else (None,) * len(results)
        names = NameUniquer(i.name for i in self.module.instructions)
        returned, behind = list(results), dict[Instruction, list[Instruction]]()
        for number, (value, leaf) in enumerate(zip(results, leaves, strict=False)):
            if not value.shape.is_array or (leaf is None and _is_open(self.module.open_outputs, number)):
                continue
            made = returned[number] = self._returned(value, leaf or HloSharding.replicate(), names)
            behind.setdefault(value, []).insert(0, made)
        rewrite.place_behind(entry, behind)
        if root.opcode == "tuple":
            rewrite.set_operands(root, returned)
        else:
            entry.set_root(returned[0])

    def _returned(self, value: Instruction, leaf: HloSharding, names: NameUniquer) -> Instruction:
        body = value.computation
        made = rewrite.insert(
            body, len(body.instructions), "custom-call", value.shape, (value,),
            name=names.fresh(f"{value.name}.returned"), like=value, custom_call_target=targets.FUNC_RESULT_SHARDING,
            custom_call_api_version=1, custom_call_has_side_effect=True,
        )  # fmt: skip
        self._set(made, f"#sdy.sharding_per_value<[{self._text(made, leaf)}]>")
        return made

    def _per_value(self, inst: Instruction, sharding: HloSharding) -> str:
        pairs = zip(inst.shape.leaves, sharding.leaves, strict=True)
        texts = [self._text(inst, leaf, shape.rank if shape.is_array else 0) for shape, leaf in pairs]
        return f"#sdy.sharding_per_value<[{', '.join(texts)}]>"

    def _text(self, inst: Instruction, leaf: HloSharding, rank: int | None = None) -> str:
        try:
            return _sdy_text(leaf, inst.shape.rank if rank is None else rank, self.mesh, open_dims_of(inst))
        except ShardingError as error:
            raise ShardingError(error.what, where=repr(inst), remedy=error.remedy) from error

    def _set(self, inst: Instruction, text: str) -> None:
        rewrite.set_attributes(inst, frontend_attributes={**inst.frontend_attributes, _MARK: text})


def _may_lose_results(inst: Instruction) -> bool:
    """On its way to HLO jaxlib drops results that nobody reads, and carries that a loop never changes; but it keeps
    their shardings, and refuses what is left.
    """
    if not inst.shape.is_tuple or inst.is_root or any(user.opcode != "get-tuple-element" for user in inst.users):
        return False
    if len({user.tuple_index for user in inst.users}) < len(inst.shape.tuple_shapes):
        return True
    results = while_parts(inst)[0].results if inst.opcode == "while" else ()
    return any(_is_carried_on(value, number) for number, value in enumerate(results))


def _is_carried_on(value: Instruction, number: int) -> bool:
    if value.opcode != "get-tuple-element":
        return False
    return value.tuple_index == number and value.operands[0].opcode == "parameter"


def _is_open(said: bool | tuple[bool, ...], number: int) -> bool:
    """One bool may speak for all."""
    if isinstance(said, bool):
        return said
    return said[number] if number < len(said) else bool(said) and said[0]


def _sdy_text(sharding: HloSharding, rank: int, mesh: MeshInfo, open_dims: Iterable[int]) -> str:
    if sharding.is_unknown():
        return write_sdy_sharding(SdySharding(NamedForm(mesh, (DimAxes((), True),) * rank)))
    if sharding.is_manual() or sharding.is_manual_subgroup():
        raise ShardingError(f"Shardy has no word for {sharding} outside of a region with manual axes")
    form = _form(sharding, mesh, rank)
    opened = (replace(dim, is_open=dim.is_open or n in open_dims) for n, dim in enumerate(form.dims))
    return write_sdy_sharding(SdySharding(replace(form, dims=tuple(opened))))


@memoised
def _form(sharding: HloSharding, mesh: MeshInfo, rank: int) -> NamedForm:
    """Over the mesh; over one whose axes are its own tiles where its devices come in another order."""
    try:
        return Interchange(sharding).over(mesh, rank).form
    except ShardingError:
        if not sharding.is_tiled():
            raise
    tiles = sharding.tiles
    axes = tuple(f"axis_{n}" for n in range(len(tiles.dims)))
    return Interchange(sharding.without_names()).over(MeshInfo(axes, tiles.dims, tiles), rank).form


def _unsaid(what: str, inst: Instruction) -> ShardingError:
    return ShardingError(f"{what} is not written for Shardy", where=repr(inst), remedy="write it as plain StableHLO")
