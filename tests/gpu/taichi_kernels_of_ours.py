"""Taichi's kernels of the ladder: it reads their source from this file."""

import numpy
import taichi as ti

ti.init(arch=ti.cuda, offline_cache=False, device_memory_GB=0.5, random_seed=5)


def fields():
    n = 4096
    x, y, total = ti.field(ti.f32, n), ti.field(ti.f32, n), ti.field(ti.f32, ())
    x.from_numpy(numpy.random.default_rng(1).random(n).astype("float32"))

    @ti.kernel
    def waves(times: ti.i32):
        for i in x:
            value = x[i]
            for _ in range(times):
                value = ti.sin(value) * 0.5 + ti.sqrt(ti.abs(value))
            y[i] = value

    @ti.kernel
    def add_up() -> ti.f32:
        found = 0.0
        for i in y:
            found += y[i]
        return found

    @ti.kernel
    def outside(a: ti.types.ndarray(), b: ti.types.ndarray()):
        for i, j in a:
            b[j, i] = a[i, j] * 2

    waves(20)
    a = numpy.random.default_rng(2).random((64, 32)).astype("float32")
    b = numpy.zeros((32, 64), "float32")
    outside(a, b)
    total[None] = add_up()
    return [y.to_numpy(), total.to_numpy().reshape(1), b]


def particles():
    count, cells = 2000, 64
    where, speed = ti.Vector.field(2, ti.f32, count), ti.Vector.field(2, ti.f32, count)
    mass = ti.field(ti.i32, (cells, cells))
    random = numpy.random.default_rng(4)
    where.from_numpy(random.random((count, 2)).astype("float32"))
    speed.from_numpy((random.random((count, 2)) - 0.5).astype("float32"))

    @ti.kernel
    def step():
        for cell in ti.grouped(mass):
            mass[cell] = 0
        for p in where:
            where[p] += 0.01 * speed[p]
            for d in ti.static(range(2)):
                if where[p][d] < 0 or where[p][d] >= 1:
                    speed[p][d] = -speed[p][d]
                    where[p][d] = ti.min(ti.max(where[p][d], 0.0), 0.9999)
            mass[ti.cast(where[p] * cells, ti.i32)] += 1

    for _ in range(100):
        step()
    return [where.to_numpy(), mass.to_numpy()]


def gradients():
    n = 256
    x, loss = ti.field(ti.f32, n, needs_grad=True), ti.field(ti.f32, (), needs_grad=True)
    sparse = ti.field(ti.i32)
    ti.root.pointer(ti.i, 64).dense(ti.i, 16).place(sparse)
    x.from_numpy(numpy.linspace(0, 1, n).astype("float32"))

    @ti.kernel
    def energy():
        for i in x:
            loss[None] += x[i] ** 3 / n

    @ti.kernel
    def activate():
        for i in range(32):
            sparse[i * 32] = i + 1

    @ti.kernel
    def count() -> ti.i32:
        found = 0
        for i in sparse:
            found += 1 + sparse[i]
        return found

    with ti.ad.Tape(loss=loss):
        energy()
    activate()
    return [x.grad.to_numpy(), numpy.array([loss[None], count()])]
