#pragma once

namespace emm::observe {

// A static object that is never destroyed, because calls may come while the process ends, and that
// lies in no memory of its own, so that making it needs none: functions that must not throw use it.
template <class Type> union Immortal {
    Type value;
    Immortal() : value() {}
    ~Immortal() {}
};

} // namespace emm::observe
