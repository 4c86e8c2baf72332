#include "serve/python.h"

#include "catch.h"

#include <cstring>

using namespace emm::run;

namespace {

int is_initialized, is_held;

int initialized() {
    return is_initialized;
}

int held() {
    return is_held;
}

void any() {}

void *find_all(const char *name) {
    const auto address = [](auto function) { return reinterpret_cast<void *>(function); };
    return std::strcmp(name, "Py_IsInitialized") == 0   ? address(&initialized)
           : std::strcmp(name, "PyGILState_Check") == 0 ? address(&held)
                                                        : address(&any);
}

void *find_none(const char *) {
    return nullptr;
}

// As Python 2 has it.
void *find_old(const char *name) {
    return std::strcmp(name, "PyGILState_Check") == 0 ? nullptr : find_all(name);
}

} // namespace

TEST_CASE("an interpreter is found if it has every function that is called") {
    Python python = {};
    CHECK(find_python(&find_all, python));
    CHECK_FALSE(find_python(&find_none, python));
    CHECK_FALSE(find_python(&find_old, python));
}

TEST_CASE("an interpreter is free for a thread that does not hold its lock") {
    Python python = {};
    REQUIRE(find_python(&find_all, python));
    is_initialized = 1;
    is_held = 0;
    CHECK(python.is_free());
    is_held = 1;
    CHECK_FALSE(python.is_free());
    is_initialized = is_held = 0;
    CHECK_FALSE(python.is_free());
}
