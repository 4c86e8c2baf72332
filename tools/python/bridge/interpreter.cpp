#include "interpreter.h"

namespace emm::bridge {

PythonFunctions python = {
    nullptr, nullptr, nullptr, nullptr, []() -> void * { return nullptr; }, [](void *) {}};

} // namespace emm::bridge

void emm_python_set_functions(const PythonFunctions *functions) {
    emm::bridge::python = *functions;
}
