"""JAX as pip installs it. Prints one line for each thing that is tried; every result is compared with NumPy's."""

import sys
import traceback

import jax
import jax.numpy as jnp
import numpy as np

random = np.random.default_rng(1)
X = random.standard_normal((64, 96)).astype(np.float32)
Y = random.standard_normal((96, 32)).astype(np.float32)


def same(found, expected, tolerance=1e-4):
    np.testing.assert_allclose(np.asarray(found, np.float64), np.asarray(expected, np.float64), rtol=tolerance, atol=tolerance)


def on_a_gpu():
    assert jax.devices()[0].platform == "gpu", jax.devices()


def elementwise():
    same(jax.jit(lambda x: jnp.tanh(x) * jnp.exp(-x * x) + 1)(X), np.tanh(X) * np.exp(-X * X) + 1)


def reductions():
    same(jax.jit(lambda x: (x.sum(1), x.max(1))[0])(X), X.sum(1), 1e-3)


def softmax():
    same(jax.jit(lambda x: jax.nn.softmax(x, -1))(X), np.exp(X) / np.exp(X).sum(-1, keepdims=True))


def products():
    same(jax.jit(lambda x, y: x @ y)(X, Y), X @ Y, 2e-2)


def gradients():
    found = jax.jit(jax.grad(lambda w: jnp.sum(jnp.tanh(X @ w) ** 2)))(Y)
    t = np.tanh(X @ Y)
    same(found, X.T @ (2 * t * (1 - t * t)), 3e-1)


def training():
    """A straight line through points, found by gradient descent."""
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    y = 3 * x - 0.5
    step = jax.jit(lambda p: jax.tree.map(lambda a, g: a - 0.5 * g, p, jax.grad(lambda p: jnp.mean((p[0] * x + p[1] - y) ** 2))(p)))
    line = (jnp.float32(0), jnp.float32(0))
    for _ in range(60):
        line = step(line)
    same(line, (3, -0.5), 1e-2)


def scan():
    same(jax.jit(lambda x: jax.lax.scan(lambda c, v: (c + v, c + v), jnp.zeros(96), x)[1])(X), np.cumsum(X, 0), 1e-3)


def loops():
    same(jax.jit(lambda: jax.lax.while_loop(lambda c: c[0] < 10, lambda c: (c[0] + 1, c[1] * 2), (0, 1.0))[1])(), 1024)


def random_numbers():
    found = jax.random.normal(jax.random.key(0), (10_000,))
    assert abs(float(found.mean())) < 0.05 and 0.95 < float(found.std()) < 1.05


def sort():
    same(jax.jit(lambda x: jnp.sort(x.ravel()))(X), np.sort(X.ravel()))


def convolutions():
    x, w = random.standard_normal((1, 3, 16, 16)).astype(np.float32), random.standard_normal((4, 3, 3, 3)).astype(np.float32)
    found = jax.jit(lambda x, w: jax.lax.conv_general_dilated(x, w, (1, 1), "VALID"))(x, w)[0]
    windows = np.lib.stride_tricks.sliding_window_view(x[0], (3, 3), (1, 2))
    same(found, np.einsum("cijab,ocab->oij", windows, w), 2e-2)


def fft():
    same(jnp.abs(jnp.fft.fft(X)), np.abs(np.fft.fft(X)), 1e-3)


def scatter():
    same(jnp.zeros(10).at[jnp.array([1, 1, 3])].add(1.0), np.bincount([1, 1, 3], minlength=10))


def vectorized_map():
    same(jax.jit(jax.vmap(lambda x: jnp.dot(x, x)))(X), (X * X).sum(1), 1e-2)


def qr():
    q, r = jnp.linalg.qr(jnp.asarray(X[:, :32]))
    same(q @ r, X[:, :32], 1e-2)


TRIED = [on_a_gpu, elementwise, reductions, softmax, products, gradients, training, scan, loops, random_numbers, sort, convolutions, fft, scatter, vectorized_map, qr]

if __name__ == "__main__":
    wanted = sys.argv[1:]
    for one in TRIED:
        if wanted and one.__name__ not in wanted:
            continue
        try:
            one()
            print(f"{one.__name__}: runs", flush=True)
        except Exception as error:
            if wanted:
                traceback.print_exc()
            print(f"{one.__name__}: {type(error).__name__}: {' '.join(str(error).split())[:120]}", flush=True)
