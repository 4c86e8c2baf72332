#include "driver/charges.h"

#include "catch.h"
#include "driver/account.h"

using namespace emm::driver;

namespace {

using By = Charges::By;

std::optional<uint64_t> tell_nothing(uint64_t, PoolFigure) {
    return std::nullopt;
}

struct Charged {
    Account account{&tell_nothing};
    Charges charges{account};

    Charges::Charge charge(uint64_t bytes, uint64_t context) {
        const uint64_t id = account.take({0, Holder::managers, Kind::block, bytes});
        account.keep(id);
        return {id, context};
    }
};

} // namespace

TEST_CASE("a context has charges until the last of them is detached") {
    Charged of;
    of.charges.attach({By::address, 1}, of.charge(10, 7));
    of.charges.attach({By::host, 1}, of.charge(20, 7));
    CHECK_FALSE(of.charges.has_any(8));
    of.charges.detach({By::address, 1});
    CHECK(of.charges.has_any(7));
    of.charges.detach({By::host, 1});
    CHECK_FALSE(of.charges.has_any(7));
    CHECK(of.charges.detach({By::host, 1}).id == 0);
}

TEST_CASE("a key that the driver hands out again ends its older charge") {
    Charged of;
    of.charges.attach({By::address, 1}, of.charge(10, 7));
    of.charges.attach({By::address, 1}, of.charge(20, 8));
    CHECK(of.account.used(0) == 20);
    CHECK_FALSE(of.charges.has_any(7));
    of.charges.attach({By::address, 1}, of.charge(30, 8));
    CHECK(of.account.used(0) == 30);
    of.charges.detach({By::address, 1});
    CHECK_FALSE(of.charges.has_any(8));
}

TEST_CASE("a context that ends takes its charges with it, and no others") {
    Charged of;
    of.charges.attach({By::address, 1}, of.charge(10, 7));
    of.charges.attach({By::address, 2}, of.charge(20, 8));
    of.charges.attach({By::handle, 1}, of.charge(30, no_context));
    of.charges.end(7);
    CHECK(of.account.used(0) == 50);
    CHECK_FALSE(of.charges.has_any(7));
    CHECK(of.charges.has_any(8));
    CHECK(of.charges.find({By::handle, 1}) != 0);
}

TEST_CASE("the mappings within a range are detached together") {
    Charged of;
    for (const uint64_t address : {0x1000, 0x2000, 0x3000}) {
        of.charges.attach({By::mapping, address}, of.charge(10, no_context));
    }
    of.charges.attach({By::pool, 0x2000}, of.charge(10, no_context));
    CHECK(of.charges.detach_mappings(0x2000, 0x2000).size() == 2);
    CHECK(of.charges.find({By::mapping, 0x1000}) != 0);
    CHECK(of.charges.find({By::mapping, 0x2000}) == 0);
    CHECK(of.charges.find({By::pool, 0x2000}) != 0);
}
