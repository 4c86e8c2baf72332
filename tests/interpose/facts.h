// The cases' findings, printed as lines that are the same on every driver that follows CUDA's
// documentation: they have no address, no handle and no time.
#pragma once

#include "driver.h"

// Begins a case; its name stands before each line.
void begin_case(const char *name);
void skipped(const char *why); // the case cannot run here

// "alloc: 4096 bytes: aligned: yes"; a "no" is wrong.
void fact(bool holds, const char *format, ...) __attribute__((format(printf, 2, 3)));

// "alloc: size 0: CUDA_ERROR_INVALID_VALUE"; another result than `documented` is wrong.
void result(CUresult got, CUresult documented, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// A fact that CUDA's documentation leaves open, such as "attributes: an address on the stack: its
// size: none".
void told(const char *answer, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *name_of(CUresult code);

// A call that a case needs: ends the process if it failed.
#define NEED(call) need((call), #call)
void need(CUresult got, const char *call);

// How many lines were wrong.
int wrong_facts();
