#pragma once

// A struct of emm's, or of the simulated driver's, that says how large it is here.
template <class Struct> Struct sized() {
    Struct made = {};
    made.struct_size = sizeof made;
    return made;
}
