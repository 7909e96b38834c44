// peer_gloo — gloo's all-reduce over TCP for comparison: fp32 in place, by halving and doubling, its quickest way at large
// sizes, as JSON lines {"bytes":…,"median_us":…} of rank 0. Arguments: RANK RANKS FOLDER BYTES…; the ranks meet in the
// folder. The time of a run is that of its slowest rank. Built by tests/bench/comm.sh.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include <gloo/allreduce_halving_doubling.h>
#include <gloo/barrier.h>
#include <gloo/gather.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

using Context = std::shared_ptr<gloo::rendezvous::Context>;

// Of each run the slowest rank's time, on rank 0.
static std::vector<double> slowest(const Context &context, int rank, int ranks, std::vector<double> mine)
{
    std::vector<double> all(mine.size() * static_cast<size_t>(ranks));
    gloo::GatherOptions options(context);
    options.setInput(mine.data(), mine.size());
    if (rank == 0)
        options.setOutput(all.data(), all.size());
    options.setRoot(0);
    gloo::gather(options);
    for (size_t i = 0; rank == 0 && i < all.size(); i++)
        mine[i % mine.size()] = std::max(mine[i % mine.size()], all[i]);
    return mine;
}

static void measure(const Context &context, int rank, int ranks, std::vector<float> &data, size_t bytes, int runs)
{
    std::vector<float *> at{data.data()};
    gloo::AllreduceHalvingDoubling<float> all_reduce(context, at, static_cast<int>(bytes / 4));
    gloo::BarrierOptions barrier(context);
    std::vector<double> us;
    for (int i = -2; i < runs; i++) {
        gloo::barrier(barrier);
        gloo::barrier(barrier);
        auto begin = std::chrono::steady_clock::now();
        all_reduce.run();
        std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - begin;
        if (i >= 0)
            us.push_back(elapsed.count());
    }
    us = slowest(context, rank, ranks, us);
    std::sort(us.begin(), us.end());
    if (rank == 0)
        std::printf("{\"bytes\":%zu,\"median_us\":%.3f}\n", bytes, us[us.size() / 2]);
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return 64;
    const int rank = std::atoi(argv[1]), ranks = std::atoi(argv[2]);
    std::vector<size_t> sizes;
    for (int i = 4; i < argc; i++)
        sizes.push_back(static_cast<size_t>(std::atol(argv[i])));
    gloo::transport::tcp::attr where;
    where.hostname = "127.0.0.1";
    gloo::rendezvous::FileStore store(argv[3]);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    auto device = gloo::transport::tcp::CreateDevice(where);
    context->connectFullMesh(store, device);
    std::vector<float> data(*std::max_element(sizes.begin(), sizes.end()) / 4, 0.0f);
    for (size_t bytes : sizes)
        measure(context, rank, ranks, data, bytes, bytes <= 64 << 10 ? 301 : bytes <= 1 << 20 ? 101 : bytes <= 16 << 20 ? 11 : 5);
    return 0;
}
