"""CUDA-Q's kernels of the ladder: it reads their source from this file."""

import cudaq


@cudaq.kernel
def entangle(count: int):
    qubits = cudaq.qvector(count)
    h(qubits[0])
    for index in range(count - 1):
        x.ctrl(qubits[index], qubits[index + 1])


@cudaq.kernel
def turn(count: int, angle: float):
    qubits = cudaq.qvector(count)
    for index in range(count):
        ry(angle + 0.1 * index, qubits[index])
    for index in range(count - 1):
        x.ctrl(qubits[index], qubits[index + 1])
        rz(angle, qubits[index + 1])


def results():
    import numpy
    cudaq.set_target("nvidia", option="fp64")
    ends = numpy.asarray(cudaq.get_state(entangle, 18))
    chain = numpy.asarray(cudaq.get_state(turn, 12, 0.3))
    energy = 0.0
    for index in range(11):
        energy += cudaq.spin.z(index) * cudaq.spin.z(index + 1) + 0.5 * cudaq.spin.x(index)
    values = [cudaq.observe(turn, energy, 12, angle).expectation() for angle in (0.1, 0.2, 0.3)]
    return [ends.real, chain.real, chain.imag, values]
