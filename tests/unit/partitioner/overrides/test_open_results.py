"""Results that nobody asked for in a sharding, and that do not divide evenly, stay split where they can."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import hlosharding as hs
from tests.support.program_check import check
from tests.support.random_programs.programs import RandomProgram
from tests.support.split_programs import mark, module_of, values

WHY = "nobody asked for the result whole, and it has dims that divide evenly"
BATCH, VOCABULARY = "[2,1,4]<=[8] copies", "[1,4,2]<=[2,4]T(1,0) copies"


@dataclass(frozen=True)
class Case:
    """A product of rows split over 2 and columns split over 4, with 2 x 4 devices."""

    columns: int = 1023
    rows: int = 16
    end: str = ""
    is_open: bool | tuple[bool, ...] = True

    def partitioned(self) -> hs.Partitioned:
        """Propagated with open results, and compared with one device."""
        root = "" if self.end else "ROOT "
        module = module_of(f"""
            x = f32[{self.rows},64] parameter(0){mark(BATCH)}
            e = f32[64,{self.columns}] parameter(1){mark(VOCABULARY)}
            {root}y = f32[{self.rows},{self.columns}] dot(x, e), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
            {self.end}""")
        module.open_outputs = self.is_open
        drawn = [values(p.shape, seed) for seed, p in enumerate(module.entry.parameters)]
        return check(RandomProgram(module, tuple(drawn))).partitioned


def result(local: hs.Partitioned) -> str:
    """How the program gives its result back."""
    return str(local.module.sharding(local.module.entry.root))


def overrides(local: hs.Partitioned) -> dict[str, str]:
    return {o.name: o.why for o in local.sharding_overrides}


def test_the_tiles_of_an_uneven_dim_go_to_one_that_divides() -> None:
    local = Case().partitioned()
    assert result(local) == "{devices=[8,1]<=[8]}"
    assert overrides(local) == {"y": WHY}
    # The vocabulary's weights, as a device has them (256 columns a tile, the last one padded), are all that moves.
    assert local.comm_bytes_per_device <= 3 * 64 * 256 * 4


def test_where_no_dim_divides_the_even_ones_keep_their_split() -> None:
    local = Case(rows=18).partitioned()
    assert result(local) == "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"


def test_results_that_divide_evenly_are_as_propagated() -> None:
    local = Case(columns=1024).partitioned()
    assert result(local) == "{devices=[2,4]<=[8]}"
    assert local.sharding_overrides == ()
    assert local.comm_bytes_per_device == 0


TWO = "n = f32[16,1023] negate(y)\n ROOT t = (f32[16,1023], f32[16,1023]) tuple(y, n)"


def test_of_several_results_those_that_are_open() -> None:
    # The text says of the result that is not open that it is whole, and nothing of the other.
    end = f"{TWO}, sharding={{{{unknown}}, {{replicated}}}}"
    local = Case(end=end, is_open=(True, False)).partitioned()
    sharding = local.module.sharding(local.module.entry.root)
    assert sharding is not None
    assert [leaf.is_replicated() for leaf in sharding.leaves] == [False, True]
    assert overrides(local)["t"] == WHY


def test_a_result_that_somebody_asked_for_whole_is_whole() -> None:
    local = Case(end=f"ROOT c = f32[16,1023] negate(y){mark('')}", is_open=False).partitioned()
    assert result(local) == "{replicated}"


def test_a_program_that_reuses_donated_buffers_gives_back_what_it_took() -> None:
    module = module_of(f"""
        x = f32[16,1023] parameter(0)
        e = f32[16,1023] parameter(1){mark("[2,4]<=[8]")}
        ROOT y = f32[16,1023] add(x, e)""")
    module.open_outputs = True
    module.proto.buffer_donor.entries.add(parameter_number=0)
    local = hs.partition(hs.propagate(module))
    assert result(local) == "{replicated}"


def test_jit_gives_back_what_the_program_does() -> None:
    import jax
    from jax.sharding import Mesh
    from jax.sharding import PartitionSpec as P

    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))
    x, e = values_of((16, 64), 0), values_of((64, 1023), 1)
    product = hs.jit(lambda x, e: x @ e, mesh=mesh, in_shardings=(P("data"), P()))(x, e)
    np.testing.assert_allclose(product, x @ e, rtol=1e-4, atol=1e-4)
    assert product.addressable_shards[0].data.shape[0] < 16


def values_of(dims: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=dims).astype(np.float32)
