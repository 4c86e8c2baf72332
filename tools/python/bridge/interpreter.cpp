#include "interpreter.h"

namespace emm::bridge {

PythonFunctions python = {};

} // namespace emm::bridge

void emm_python_set_functions(const PythonFunctions *functions) {
    emm::bridge::python = *functions;
}
