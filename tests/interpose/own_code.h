// Code of the program that emm calls: a pressure callback, a finalizer and a log callback. Each
// waits for a call of CUDA, which emm pause may hold. So does a library's constructor, with the
// dynamic linker's lock. For outside_callbacks_test.py.
#pragma once

#include <cuda.h>
#include <string>

namespace own_code {

// Obeys a word that begins with "own-". Gives the answer.
std::string obey(CUcontext context, const std::string &word);

} // namespace own_code
