"""Programs of the ladder: molecules by gpu4pyscf, whose results have to be those of PySCF on the processor. They are left out where their packages are missing; PYTHONPATH=SITE brings along what this has installed:

pip install --no-deps --target SITE gpu4pyscf-cuda13x==1.9.0 gpu4pyscf-libxc-cuda13x==0.9.0 pyscf==2.14.0 cutensor-cu13==2.8.1

The machine itself has CuPy, SciPy and h5py.
"""

from importlib import metadata

from programs_carried import needs

WATER = "O 0 0 0.1174; H 0 0.7572 -0.4696; H 0 -0.7572 -0.4696"


def cutensor_loaded():
    """CuPy asks for cuTENSOR by name, and finds it where it is loaded; without it, gpu4pyscf takes CuPy's own products."""
    import ctypes
    try:
        folder = metadata.distribution("cutensor-cu13")
    except metadata.PackageNotFoundError:
        return
    for name in ("libcutensor.so.2", "libcutensorMg.so.2"):
        ctypes.CDLL(str(folder.locate_file(f"cutensor/lib/{name}")))


def chemistry_ready():
    """It loads cuBLAS and cuSOLVER by names that only a toolkit in the loader's own folders has: it gets those that CuPy uses."""
    import ctypes
    import ctypes.util
    from unittest import mock
    from cuda.pathfinder import load_nvidia_dynamic_lib
    paths = {name: load_nvidia_dynamic_lib(name).abs_path for name in ("cublas", "cusolver")}
    cutensor_loaded()
    whole = ctypes.CDLL

    def loaded(name, *more, **named):
        return whole(paths["cublas"] if name == "libcublas.so" else name, *more, **named)

    with mock.patch.object(ctypes, "CDLL", loaded), mock.patch.object(ctypes.util, "find_library", paths.get):
        import gpu4pyscf.lib.cublas
        import gpu4pyscf.lib.cusolver
    import pyscf
    import numpy
    return gpu4pyscf, pyscf, numpy


def molecule(pyscf, atoms=WATER, basis="6-31g", **more):
    return pyscf.M(atom=atoms, basis=basis, verbose=0, **more)


def converged(model):
    model.conv_tol = 1e-10
    energy = model.kernel()
    assert model.converged
    return float(energy)


def both(ours, theirs, close=1e-6):
    """Energies and gradients of a model on the card, and of the same one on the processor."""
    import numpy
    energy, wanted = converged(ours), converged(theirs)
    assert abs(energy - wanted) < close, (energy, wanted)
    gradient = numpy.asarray(ours.nuc_grad_method().kernel())
    numpy.testing.assert_allclose(gradient, theirs.nuc_grad_method().kernel(), atol=10 * close)
    return [[energy], gradient]


@needs("gpu4pyscf")
def gpu4pyscf_hartree_fock():
    gpu, pyscf, numpy = chemistry_ready()
    from gpu4pyscf import scf
    water = molecule(pyscf, basis="6-31g**")
    ours, theirs = scf.RHF(water), pyscf.scf.RHF(water)
    found = both(ours, theirs)
    numpy.testing.assert_allclose(ours.mo_energy.get(), theirs.mo_energy, atol=1e-5)
    return [*found, ours.mo_energy]


@needs("gpu4pyscf")
def gpu4pyscf_density_functional():
    _, pyscf, _ = chemistry_ready()
    from gpu4pyscf import dft
    water, found = molecule(pyscf), []
    for functional in ("b3lyp", "r2scan"):
        found += both(dft.RKS(water, xc=functional), pyscf.dft.RKS(water, xc=functional), close=2e-5)
    return found


@needs("gpu4pyscf")
def gpu4pyscf_density_fitting():
    _, pyscf, _ = chemistry_ready()
    from gpu4pyscf import dft
    water = molecule(pyscf, basis="def2-svp")
    return both(dft.RKS(water, xc="pbe0").density_fit(), pyscf.dft.RKS(water, xc="pbe0").density_fit(), close=2e-5)


@needs("gpu4pyscf")
def gpu4pyscf_open_shells():
    _, pyscf, _ = chemistry_ready()
    from gpu4pyscf import dft, scf
    radical = molecule(pyscf, atoms="N 0 0 0; H 0 0 1.04", spin=2)
    found = both(scf.UHF(radical), pyscf.scf.UHF(radical))
    return found + both(dft.UKS(radical, xc="b3lyp"), pyscf.dft.UKS(radical, xc="b3lyp"), close=2e-5)


@needs("gpu4pyscf")
def gpu4pyscf_second_derivatives():
    _, pyscf, numpy = chemistry_ready()
    from gpu4pyscf import scf
    water = molecule(pyscf)
    ours, theirs = scf.RHF(water), pyscf.scf.RHF(water)
    found = [[converged(ours)]]
    converged(theirs)
    second = numpy.asarray(ours.Hessian().kernel())
    numpy.testing.assert_allclose(second, theirs.Hessian().kernel(), atol=1e-4)
    return [*found, second]


@needs("gpu4pyscf")
def gpu4pyscf_excitations_and_solvent():
    _, pyscf, numpy = chemistry_ready()
    from gpu4pyscf import dft
    water = molecule(pyscf)
    ours, theirs = dft.RKS(water, xc="b3lyp"), pyscf.dft.RKS(water, xc="b3lyp")
    found = [[converged(ours)]]
    converged(theirs)
    excited, wanted = ours.TDA(), theirs.TDA()
    excited.nstates = wanted.nstates = 3
    excited.kernel()
    wanted.kernel()
    energies = numpy.asarray(excited.e)
    numpy.testing.assert_allclose(energies, wanted.e, atol=1e-3)
    wet, damp = dft.RKS(water, xc="b3lyp").PCM(), pyscf.dft.RKS(water, xc="b3lyp").PCM()
    for model in (wet, damp):
        model.with_solvent.method = "C-PCM"
        model.with_solvent.eps = 78.36
    energy = converged(wet)
    assert abs(energy - converged(damp)) < 1e-4
    assert energy < found[0][0] - 1e-3
    return [*found, energies, [energy]]
