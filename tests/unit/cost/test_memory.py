"""Peak memory: hand liveness on small programs, and XLA's own buffer assignment on compiled ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from hlosharding import load
from hlosharding.cost import cost, peak_memory, temporary_memory
from tests.support.training_steps import perceptron

K = 1000 * 4  # bytes of f32[1000]


def peak(body: str, *, before: str = "", options: str = "") -> float:
    """Peak of a program, in units of f32[1000]."""
    return peak_memory(load(f"HloModule m{options}\n{before}\nENTRY main {{\n{body}\n}}")).bytes / K


def test_arguments_and_results_stay() -> None:
    assert peak("p = f32[1000] parameter(0)  q = f32[1000] parameter(1)  ROOT r = f32[1000] add(p, q)") == 3


def test_a_value_dies_after_its_last_use() -> None:
    body = """
      p = f32[1000] parameter(0)
      a = f32[1000] collective-permute(p), source_target_pairs={{0,1}}, channel_id=1
      b = f32[1000] collective-permute(a), source_target_pairs={{0,1}}, channel_id=2
      c = f32[1000] collective-permute(b), source_target_pairs={{0,1}}, channel_id=3
      ROOT d = f32[1000] collective-permute(c), source_target_pairs={{0,1}}, channel_id=4
    """
    assert peak(body) == 3


def test_two_values_alive_at_once() -> None:
    body = """
      p = f32[1000] parameter(0)
      a = f32[4000] all-gather(p), dimensions={0}, replica_groups={{0,1,2,3}}, channel_id=1
      b = f32[4000] collective-permute(a), source_target_pairs={{0,1}}, channel_id=2
      c = f32[8000] all-gather(b), dimensions={0}, replica_groups={{0,1}}, channel_id=3
      ROOT d = f32[1000] slice(c), slice={[0:1000]}
    """
    # p 1 and b 4 and c 8 while c is made; a is gone.
    assert peak(body) == 13


def test_a_bound_is_kept_where_some_order_keeps_it() -> None:
    """In the order of the text both gathered values are there at once, in another one after the other."""
    both = """
      p = f32[1000] parameter(0)
      a = f32[8000] all-gather(p), dimensions={0}, replica_groups={{0,1,2,3,4,5,6,7}}, channel_id=1
      b = f32[8000] all-gather(p), dimensions={0}, replica_groups={{0,1,2,3,4,5,6,7}}, channel_id=2
      c = f32[1000] reduce-scatter(a), dimensions={0}, replica_groups={{0,1,2,3,4,5,6,7}}, channel_id=3, to_apply=f
      d = f32[1000] reduce-scatter(b), dimensions={0}, replica_groups={{0,1,2,3,4,5,6,7}}, channel_id=4, to_apply=f
      ROOT t = (f32[1000], f32[1000]) tuple(c, d)
    """
    sums = "f { u = f32[] parameter(0)  v = f32[] parameter(1)  ROOT w = f32[] add(u, v) }"

    def is_at_most(times: float) -> bool:
        return cost(load(f"HloModule m\n{sums}\nENTRY main {{\n{both}\n}}")).memory.is_at_most(times * K)

    # p, the first result, a gathered value and what is made of it; all of them in the order of the text.
    assert [is_at_most(times) for times in (10.9, 11, 17.9, 18)] == [False, True, True, True]


def test_names_take_no_memory() -> None:
    body = """
      p = f32[1000] parameter(0)
      a = f32[4000] all-gather(p), dimensions={0}, replica_groups={{0,1,2,3}}, channel_id=1
      t = (f32[4000], f32[1000]) tuple(a, p)
      o = (f32[4000], f32[1000]) opt-barrier(t)
      g = f32[4000] get-tuple-element(o), index=0
      m = f32[4,1000] reshape(g)
      ROOT r = f32[4,1000] bitcast(m)
    """
    assert peak(body) == 5


def test_what_a_kernel_absorbs_takes_no_memory() -> None:
    # The big broadcast and the product exist only inside the reduction's kernel.
    body = """
      p = f32[1000] parameter(0)
      z = f32[] constant(0)
      b = f32[1000,1000] broadcast(p), dimensions={0}
      m = f32[1000,1000] multiply(b, b)
      ROOT r = f32[1000] reduce(m, z), dimensions={1}, to_apply=add
    """
    add = "add { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT s = f32[] add(x, y) }"
    assert peak(body, before=add) == pytest.approx(2, abs=0.01)


def test_an_operand_that_dies_is_written_over() -> None:
    body = """
      p = f32[1000] parameter(0)
      a = f32[4000] all-gather(p), dimensions={0}, replica_groups={{0,1,2,3}}, channel_id=1
      b = f32[4000] exponential(a)
      ROOT c = (f32[4000], f32[4000]) tuple(b, b)
    """
    assert peak(body) == 5


def test_a_kernel_writes_over_what_it_reads_in_place() -> None:
    body = """
      p = f32[1000] parameter(0)
      a = f32[4000] all-gather(p), dimensions={0}, replica_groups={{0,1,2,3}}, channel_id=1
      n = f32[4000] negate(a)
      m = f32[4000] abs(a)
      b = f32[4000] add(n, m)
      ROOT c = (f32[4000], f32[4000]) tuple(b, b)
    """
    assert peak(body) == 5
    turned = body.replace("abs(a)", "reverse(a), dimensions={0}")
    assert peak(turned) == 9  # another element of a is read where one is written


def test_a_donated_argument_makes_room() -> None:
    body = "p = f32[1000] parameter(0)  ROOT r = f32[1000] exponential(p)"
    assert peak(body) == 2
    assert peak(body, options=", input_output_alias={ {}: (0, {}, may-alias) }") == 1


def test_an_update_in_place() -> None:
    body = """
      p = f32[4000] parameter(0)
      u = f32[1000] parameter(1)
      i = s32[] constant(0)
      ROOT r = f32[4000] dynamic-update-slice(p, u, i)
    """
    assert peak(body) == 9  # the argument must not change
    assert peak(body, options=", input_output_alias={ {}: (0, {}, may-alias) }") == 5


LOOP = """
condition {
  c = (s32[], f32[1000], f32[1000]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  n = s32[] constant(10)
  ROOT less = pred[] compare(i, n), direction=LT
}
body {
  b = (s32[], f32[1000], f32[1000]) parameter(0)
  j = s32[] get-tuple-element(b), index=0
  x = f32[1000] get-tuple-element(b), index=1
  w = f32[1000] get-tuple-element(b), index=2
  one = s32[] constant(1)
  next = s32[] add(j, one)
  g = f32[8000] all-gather(x), dimensions={0}, replica_groups={{0,1,2,3,4,5,6,7}}, channel_id=1
  s = f32[1000] slice(g), slice={[0:1000]}
  y = f32[1000] multiply(s, w)
  ROOT o = (s32[], f32[1000], f32[1000]) tuple(next, y, w)
}
"""


def test_a_loop_holds_its_carry_once_and_its_body_s_temporaries() -> None:
    body = """
      p = f32[1000] parameter(0)
      q = f32[1000] parameter(1)
      zero = s32[] constant(0)
      init = (s32[], f32[1000], f32[1000]) tuple(zero, p, q)
      loop = (s32[], f32[1000], f32[1000]) while(init), condition=condition, body=body
      ROOT r = f32[1000] get-tuple-element(loop), index=1
    """
    # p and q, a copy of p to change (q is only read); in the body the gathered 8, the carry's x being dead by then.
    assert peak(body, before=LOOP) == pytest.approx(2 + 1 + 8, abs=0.01)


def test_a_branch_needs_its_own_temporaries_only_while_it_runs() -> None:
    branches = """
    wide {
      x = f32[1000] parameter(0)
      g = f32[8000] all-gather(x), dimensions={0}, replica_groups={{0,1,2,3,4,5,6,7}}, channel_id=1
      ROOT s = f32[1000] slice(g), slice={[0:1000]}
    }
    thin { x = f32[1000] parameter(0)  ROOT n = f32[1000] negate(x) }
    """
    body = """
      p = f32[1000] parameter(0)
      c = pred[] parameter(1)
      ROOT r = f32[1000] conditional(c, p, p), true_computation=wide, false_computation=thin
    """
    assert peak(body, before=branches) == pytest.approx(1 + 1 + 8, abs=0.01)


def test_asynchronous_pairs_hold_operand_and_result() -> None:
    body = """
      p = f32[1000] parameter(0)
      s = (f32[1000], f32[4000]) all-gather-start(p), dimensions={0}, replica_groups={{0,1,2,3}}, channel_id=1
      ROOT d = f32[4000] all-gather-done(s)
    """
    assert peak(body) == 5
    body = """
      p = f32[1000] parameter(0)
      s = (f32[1000], f32[1000], u32[]) copy-start(p)
      ROOT d = f32[1000] copy-done(s)
    """
    assert peak(body) == pytest.approx(2, abs=0.01)


def test_the_better_of_two_orders_counts() -> None:
    # Text order holds both gathers; depth first slices the one before making the other.
    body = """
      p = f32[1000] parameter(0)
      a = f32[4000] all-gather(p), dimensions={0}, replica_groups={{0,1,2,3}}, channel_id=1
      b = f32[4000] all-gather(p), dimensions={0}, replica_groups={{4,5,6,7}}, channel_id=2
      c = f32[1000] slice(a), slice={[0:1000]}
      d = f32[1000] slice(b), slice={[0:1000]}
      ROOT t = (f32[1000], f32[1000]) tuple(c, d)
    """
    assert peak(body) == 1 + 1 + 4 + 1


# ---------------------------------------------------------------------------------------------------------------------
# Against XLA's buffer assignment


def compiled_peak(jitted, *args) -> tuple[float, float]:
    """Our peak of the compiled module, and XLA's total of arguments, results and temporaries."""
    compiled = jitted.lower(*args).compile()
    found = peak_memory(load(compiled.as_text())).bytes
    stats = compiled.memory_analysis()
    total = stats.argument_size_in_bytes + stats.output_size_in_bytes + stats.temp_size_in_bytes
    return found, total - stats.alias_size_in_bytes


def arrays(mesh, *dims_and_specs) -> list[jax.ShapeDtypeStruct]:
    return [
        jax.ShapeDtypeStruct(dims, jnp.float32, sharding=NamedSharding(mesh, P(*spec))) for dims, spec in dims_and_specs
    ]


def mlp_loss(weights, x):
    for w in weights:
        x = jnp.tanh(x @ w)
    return jnp.square(x).sum()


def scan_loss(weights, x):
    x, _ = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, weights)
    return jnp.square(x).sum()


def conv_loss(weights, x):
    for w in weights:
        x = jax.nn.relu(jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
    return jnp.square(x).mean()


@pytest.mark.parametrize("name", ["mlp", "donated", "scan", "conv"])
def test_within_a_quarter_of_what_xla_allocates(name: str, mesh_2x4) -> None:
    """Liveness is a lower bound; XLA adds fragmentation and, on CPU, what its libraries ask for."""
    x = arrays(mesh_2x4, ((256, 512), ("data", None)))[0]
    layers = arrays(mesh_2x4, *[((512, 512), (None, "model"))] * 4)
    stacked = arrays(mesh_2x4, ((8, 512, 512), (None, None, "model")))[0]
    image = arrays(mesh_2x4, ((16, 32, 32, 8), ("data", "model")))[0]
    kernels = arrays(mesh_2x4, ((3, 3, 8, 32), ()), ((3, 3, 32, 32), ()))
    programs = {
        "mlp": (jax.jit(jax.grad(mlp_loss)), layers, x),
        "donated": (jax.jit(jax.grad(mlp_loss), donate_argnums=0), layers, x),
        "scan": (jax.jit(jax.grad(scan_loss)), stacked, x),
        "conv": (jax.jit(jax.grad(conv_loss)), kernels, image),
    }
    ours, theirs = compiled_peak(*programs[name])
    assert 0.75 * theirs <= ours <= 1.1 * theirs


def _temporaries(text: str) -> int:
    return temporary_memory(load(text))


def test_temporaries_lie_in_the_places_of_results_that_are_not_made_yet() -> None:
    # `first` is dead before the long result is made, in whose place it fits.
    text = """HloModule m
ENTRY e {
  x = f32[100] parameter(0)
  first = f32[100] collective-permute(x), source_target_pairs={{0,1}}, channel_id=1
  second = f32[100] collective-permute(first), source_target_pairs={{0,1}}, channel_id=2
  long = f32[%s] all-gather(x), dimensions={0}, replica_groups={{0,1}}, channel_id=3
  ROOT both = (f32[100], f32[%s]) tuple(second, long)
}"""
    assert _temporaries(text % (200, 200)) == 0


def test_a_temporary_larger_than_any_result_has_a_place_of_its_own() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[100] parameter(0)
  y = f32[400] all-gather(x), dimensions={0}, replica_groups={{0,1,2,3}}
  ROOT z = f32[100] slice(y), slice={[0:100]}
}"""
    assert _temporaries(text) == 1600


def test_a_temporary_that_meets_the_result_has_a_place_of_its_own() -> None:
    # The product reads y while it writes: they cannot share.  What is added in place can.
    text = """HloModule m
ENTRY e {
  x = f32[10,10] parameter(0)
  y = f32[10,10] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT z = f32[10,10] %s
}"""
    assert _temporaries(text % "dot(y, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}") == 400
    assert _temporaries(text % "add(y, x)") == 0


@pytest.mark.parametrize("donated", [(), (0,)], ids=["kept", "donated"])
def test_temporaries_of_what_xla_compiled_are_those_it_allocates(donated: tuple[int, ...]) -> None:
    step = jax.jit(perceptron, donate_argnums=donated)
    compiled = step.lower([jnp.ones((128, 128))] * 4, jnp.ones((256, 128))).compile()
    found = temporary_memory(load(compiled.as_text()))
    assert found == pytest.approx(compiled.memory_analysis().temp_size_in_bytes, rel=0.05)
