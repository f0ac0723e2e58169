"""Programs of the ladder: simulations, circuits of qubits, trees, and kernels in CUTLASS's DSL. They are left out where their packages are missing; PYTHONPATH=SITE brings along what this has installed:

pip install --no-deps --target SITE openmm==8.6.1 openmm-cuda-13==8.6.1 xgboost==3.2.0 cuda-quantum-cu13==0.16.0.post1 custatevec-cu13==1.14.0 astpretty nvidia-cutlass-dsl==4.8.1 nvidia-cutlass-dsl-libs-base==4.8.1 nvidia-cutlass-dsl-libs-core==4.8.1 nvidia-cutlass-dsl-libs-cu13==4.8.1 quack-kernels==0.6.5 apache-tvm-ffi==0.1.15.post2 torch-c-dlpack-ext==0.1.5
"""

from programs_carried import file_of, needs
from programs_ready import seeded, torch_ready


# --- OpenMM: molecular dynamics, with kernels that are compiled at run time and cuFFT


def particles(openmm, side=8):
    """A box of charged particles on a lattice, in nanometres."""
    import numpy
    spacing, system = 0.4, openmm.System()
    length = side * spacing
    system.setDefaultPeriodicBoxVectors((length, 0, 0), (0, length, 0), (0, 0, length))
    places = numpy.stack(numpy.meshgrid(*[numpy.arange(side)] * 3, indexing="ij"), axis=-1).reshape(-1, 3) * spacing
    places = places + numpy.random.default_rng(5).normal(scale=0.01, size=places.shape)
    for _ in places:
        system.addParticle(40.0)
    return system, places


def run_particles(openmm, system, integrator, places, steps):
    from openmm import unit
    platform = openmm.Platform.getPlatform("CUDA")
    context = openmm.Context(system, integrator, platform, {"Precision": "mixed", "DeterministicForces": "true"})
    context.setPositions(places)
    context.setVelocitiesToTemperature(120, 3)
    integrator.step(steps)
    state = context.getState(energy=True, positions=True, forces=True)
    energy = state.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole)
    positions = state.getPositions(asNumpy=True).value_in_unit(unit.nanometer)
    forces = state.getForces(asNumpy=True).value_in_unit(unit.kilojoule_per_mole / unit.nanometer)
    return [[energy], positions, forces]


@needs("openmm")
def openmm_charges_and_bonds():
    import openmm
    system, places = particles(openmm)
    charges, bonds = openmm.NonbondedForce(), openmm.HarmonicBondForce()
    charges.setNonbondedMethod(openmm.NonbondedForce.PME)
    charges.setCutoffDistance(1.0)
    for index in range(len(places)):
        charges.addParticle(0.2 if index % 2 else -0.2, 0.34, 1.0)
    for index in range(0, len(places) - 1, 2):
        bonds.addBond(index, index + 1, 0.4, 1000.0)
    system.addForce(charges)
    system.addForce(bonds)
    return run_particles(openmm, system, openmm.VerletIntegrator(0.002), places, 100)


@needs("openmm")
def openmm_forces_of_ones_own():
    import openmm
    system, places = particles(openmm)
    pairs = openmm.CustomNonbondedForce("4*e*((s/r)^12-(s/r)^6)*f(r); e=sqrt(e1*e2); s=(s1+s2)/2")
    pairs.addTabulatedFunction("f", openmm.Continuous1DFunction([1.0, 0.9, 0.7, 0.4, 0.1, 0.0], 0.0, 1.2))
    pairs.addPerParticleParameter("e")
    pairs.addPerParticleParameter("s")
    pairs.setNonbondedMethod(openmm.CustomNonbondedForce.CutoffPeriodic)
    pairs.setCutoffDistance(1.2)
    for index in range(len(places)):
        pairs.addParticle([1.0 + 0.1 * (index % 3), 0.34])
    system.addForce(pairs)
    integrator = openmm.LangevinMiddleIntegrator(120, 1.0, 0.002)
    integrator.setRandomNumberSeed(11)
    return run_particles(openmm, system, integrator, places, 50)


# --- XGBoost


@needs("xgboost")
def xgboost_trees():
    import numpy
    import xgboost
    random = numpy.random.default_rng(2)
    x = random.normal(size=(5000, 20)).astype(numpy.float32)
    y = (x[:, 0] * x[:, 1] + numpy.sin(x[:, 2]) > 0).astype(numpy.float32)
    data = xgboost.QuantileDMatrix(x, y)
    options = {"device": "cuda", "tree_method": "hist", "objective": "binary:logistic", "max_depth": 6, "seed": 1}
    model = xgboost.train(options, data, num_boost_round=20)
    rest = xgboost.DMatrix(x[:500])
    return [model.predict(data), model.predict(rest, pred_contribs=True)]


# --- CUDA-Q: circuits of qubits, by cuStateVec


@needs("cudaq")
def cudaq_states_and_expectations():
    return file_of("cudaq_kernels_of_ours").results()


# --- CUTLASS's DSL, and a library of kernels that are written in it


def find_cutlass():
    """What its wheel does by a .pth file, which nobody reads for PYTHONPATH."""
    import os
    import sys
    import nvidia_cutlass_dsl
    sys.path.insert(0, os.path.join(nvidia_cutlass_dsl.__path__[0], "dsl_packages"))


@needs("nvidia_cutlass_dsl")
def cutlass_kernels():
    torch = torch_ready()
    find_cutlass()
    a, b = seeded(torch, 256, 512), seeded(torch, 256, 512)
    return file_of("cutlass_kernels_of_ours").sums(a, b)


@needs("quack")
def quack_norms_and_losses():
    torch = torch_ready()
    find_cutlass()
    from quack import cross_entropy, rmsnorm, softmax
    x, weight = seeded(torch, 64, 1024, dtype=torch.bfloat16), seeded(torch, 1024)
    logits, targets = seeded(torch, 64, 4096, dtype=torch.bfloat16), torch.randint(0, 4096, (64,)).cuda()
    return [rmsnorm(x, weight), softmax(x), cross_entropy(logits, targets)]
