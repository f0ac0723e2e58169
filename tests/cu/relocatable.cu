// Relocatable device code in PTX alone: it is linked when the program starts.
// nvcc: -rdc=true -gencode arch=compute_75,code=compute_75
#include "relocatable.cuh"
