#include "pieces.h"

namespace emm::pool {

void Pieces::add(const Piece &piece) {
    const uint64_t first = number(piece.address);
    const auto count = int64_t(piece.bytes / page_bytes);
    pages_[first] = {piece.handle, piece.other, count, piece.role};
    for (int64_t i = 1; i < count; i++) {
        pages_[first + uint64_t(i)] = {0, 0, -i, Role::owner};
    }
}

void Pieces::remove(const Piece &piece) {
    const uint64_t first = number(piece.address);
    for (uint64_t i = 0; i < piece.bytes / page_bytes; i++) {
        pages_[first + i] = {};
    }
}

void Pieces::join_paused(uint64_t begin, uint64_t end, uint64_t most) {
    const auto behind = [&](const Piece &piece) {
        return piece.end() < end ? first_within(piece.end(), end) : Piece{};
    };
    for (Piece joined = first_within(begin, end), next; joined; joined = next) {
        next = behind(joined);
        while (next && joined.handle == 0 && next.handle == 0 &&
               joined.bytes + next.bytes <= most) {
            joined.bytes += next.bytes;
            next = behind(joined);
        }
        add(joined);
    }
}

void Pieces::set_other(uint64_t address, uint64_t other) {
    pages_[number(address)].other = other;
}

void Pieces::set_role(uint64_t address, Role role) {
    pages_[number(address)].role = role;
}

void Pieces::set_handle(uint64_t address, uint64_t handle) {
    pages_[number(address)].handle = handle;
}

Piece Pieces::at(uint64_t address) const {
    const uint64_t page = number(address);
    const int64_t extent = pages_[page].extent;
    return extent == 0 ? Piece{} : piece_from(extent > 0 ? page : page - uint64_t(-extent));
}

Piece Pieces::first_within(uint64_t from, uint64_t end) const {
    Piece piece = at(from);
    if (piece && piece.address < from) {
        piece = piece.end() < end ? at(piece.end()) : Piece{};
    }
    return piece && piece.end() <= end ? piece : Piece{};
}

} // namespace emm::pool
