#pragma once

#include "observe/events/rows.h"
#include "observe/events/spool.h"

#include <emm/status.h>
#include <string>
#include <vector>

namespace emm::observe {

// Writes a spool's events into the log, in the order of their moments.
class LogWriter {
public:
    // `csv` is an open file, positioned at its end, which is where the header says.
    LogWriter(Spool &spool, int csv);

    Rows &rows() { return rows_; }

    // The chunks of each buffer, in order. Events from `watermark` on stay in the spool. False: the
    // log cannot be written (errno); then nothing is taken as written, and the log is cut to that.
    bool write(const std::vector<std::vector<Chunk *>> &buffers, uint64_t watermark);

    // How many of a chunk's records are in the log.
    uint32_t written(const Chunk &chunk) const;

private:
    struct Cursor; // a place in a buffer
    bool merge(const std::vector<std::vector<Chunk *>> &buffers, uint64_t watermark);
    void learn_callers();
    bool flush();
    void cut();

    Spool &spool_;
    const int csv_;
    Rows rows_;
    std::string text_;       // of rows, on its way to the file
    uint64_t csv_bytes_ = 0; // in the file
    size_t lines_known_ = 0; // bytes of the spool's text about them
};

// Completes a log from the spool beside it.
emm_status recover_event_log(const std::string &path);

} // namespace emm::observe
