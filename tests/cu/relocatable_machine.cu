// Relocatable device code without PTX: there is nothing to link on a software GPU. Prints what it
// is told instead.
// nvcc: -rdc=true -gencode arch=compute_90,code=sm_90
#include "relocatable.cuh"
