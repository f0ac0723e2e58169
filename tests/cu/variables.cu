// Variables as programs are ordinarily built: machine code, optimised.
#define WITH_FUNCTIONS
#include "variables.cuh"
