// The cases, by file.
#pragma once

#include "../share/cases.h"
#include "parts.h"

namespace attacked {

using share::Outcome;

inline const char *const needs_root = "only root can become another user";

// Without asking a driver, which this process does not have.
bool simulates();
// Keeps `count` connections to the exporter's sockets, and replaces a connection that the exporter
// closes, until the test ends this process's part.
void crowd(int socket, size_t count, bool asks);

// names.cpp
Outcome guess_next_name();
Outcome take_another_name();
Outcome revive_ended();
Outcome open_freed_name();

// crowds.cpp
Outcome import_in_a_crowd();
Outcome import_beside_silent();
Outcome import_beside_impatient();
Outcome import_from_killed();

// lies.cpp
Outcome import_lies();
Outcome claim_too_much();
Outcome claim_too_many_parts();

// lacks.cpp
Outcome lack_proc();
Outcome lack_sockets();
Outcome lack_permission();
Outcome lack_descriptors();
Outcome be_an_unmapped_user();

} // namespace attacked
