// Relocatable device code in PTX alone: a device linker would have to join the parts when the
// program starts. Prints what it is told instead.
// nvcc: -rdc=true -gencode arch=compute_75,code=compute_75
#include "relocatable.cuh"
