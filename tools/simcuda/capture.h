#pragma once

#include "stream.h"

#include <cuda.h>
#include <set>

namespace simcuda {

struct Graph;

// A capture in progress, and the streams that take part.
struct Capture {
    uint64_t id = 0;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    uint32_t thread = 0;
    Stream *origin = nullptr;
    bool invalid = false;
    CUgraph graph = nullptr;
    std::set<Stream *> streams;
    std::vector<Node *> left; // the last nodes of streams that were destroyed
};

// The call fails, and so does the capture.
[[noreturn]] void fail_capture(Capture &capture, CUresult result);

// A stream that captures is destroyed: its origin, and the capture has ended; another one, and what
// it did last must be joined already.
void destroy_in_capture(Stream &stream);
Capture *capture_into(const Graph &graph); // that is in progress, or NULL

// Whether work may be put on the stream: a capture that failed refuses, and so does the legacy
// stream while a blocking stream captures.
void check_capture(Stream &stream);

// Refuses a call that is forbidden while a stream captures: any stream, one of the context, or one
// that the thread's mode protects. Invalidates the captures concerned.
void check_no_capture(Stream &stream);
void check_no_captures(Context &context);
void check_unsafe_call();

void add_node(Stream &stream, const Bind &bind);
void wait_in_capture(Event &event, Stream &stream);

} // namespace simcuda
