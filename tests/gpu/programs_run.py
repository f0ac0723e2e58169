"""Runs a program of the ladder that tests/gpu/programs.py tries, and prints the numbers of the arrays that it returns.

programs_run.py NAME        runs one
programs_run.py --list      names them all
"""

import importlib
import sys

from programs_ready import CASES

FILES = ("programs_cases", "programs_packages", "programs_corners", "programs_interfaces", "programs_carried", "programs_science", "programs_inference", "programs_frameworks", "programs_serving", "programs_tables", "programs_chemistry", "programs_tensorflow", "programs_engines", "programs_libraries", "programs_edges")


def numbers_of(array):
    import numpy
    if hasattr(array, "is_cuda"):
        array = array.detach().float() if array.dtype.is_floating_point and array.dtype.itemsize < 4 else array.detach()
        array = array.cpu().numpy()
    elif hasattr(array, "get"):
        array = array.get()
    return numpy.asarray(array, dtype=numpy.float64).ravel()


def main():
    for file in FILES:
        importlib.import_module(file)
    if sys.argv[1] == "--list":
        return print("\n".join(CASES))
    import numpy
    for array in CASES[sys.argv[1]]():
        values = numbers_of(array)
        weights = numpy.cos(numpy.arange(values.size))
        finite = numpy.nan_to_num(values, nan=12345.0, posinf=1e30, neginf=-1e30)
        print("result", values.size, repr(float(finite @ weights)), repr(float(abs(finite).sum())))


if __name__ == "__main__":
    main()
