#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <string>
#include <utility>

#include "base/fail.h"
#include "kernels/cuda/driver_entry.h"
#include "kernels/peer_device.h"
#include "tensor/device_pool.h"

namespace tessera::kernels {
namespace {

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // prevents the next call from reporting the error too
  fail(ErrorCode::rank, "the GPU failed in {}: {}", call, cudaGetErrorString(status));
}

struct Driver {
  PFN_cuMemGetAllocationGranularity_v10020 granularity;
  PFN_cuMemCreate_v10020 create;
  PFN_cuMemRelease_v10020 release;
  PFN_cuMemAddressReserve_v10020 reserve;
  PFN_cuMemAddressFree_v10020 give_back;
  PFN_cuMemMap_v10020 map;
  PFN_cuMemUnmap_v10020 unmap;
  PFN_cuMemSetAccess_v10020 set_access;
  PFN_cuMemExportToShareableHandle_v10020 export_handle;
  PFN_cuMemImportFromShareableHandle_v10020 import_handle;
  PFN_cuGetErrorString_v6000 text;
};

template <class Function>
void find(const char* name, unsigned since, Function& function) {
  function = cuda::driver_entry<Function>(name, since);
  require(function != nullptr, ErrorCode::rank,
          "the driver has no {}, for memory that processes share; use moe=bulk", name);
}

const Driver& driver() {
  static const Driver functions = [] {
    Driver d{};
    find("cuMemGetAllocationGranularity", 10020, d.granularity);
    find("cuMemCreate", 10020, d.create);
    find("cuMemRelease", 10020, d.release);
    find("cuMemAddressReserve", 10020, d.reserve);
    find("cuMemAddressFree", 10020, d.give_back);
    find("cuMemMap", 10020, d.map);
    find("cuMemUnmap", 10020, d.unmap);
    find("cuMemSetAccess", 10020, d.set_access);
    find("cuMemExportToShareableHandle", 10020, d.export_handle);
    find("cuMemImportFromShareableHandle", 10020, d.import_handle);
    find("cuGetErrorString", 6000, d.text);
    return d;
  }();
  return functions;
}

void check(CUresult status, const char* call) {
  if (status == CUDA_SUCCESS) return;
  const char* text = nullptr;
  driver().text(status, &text);
  fail(status == CUDA_ERROR_OUT_OF_MEMORY ? ErrorCode::memory : ErrorCode::rank,
       "the GPU failed in {}: {}", call, text ? text : std::to_string(status));
}

/// A handle of pages; the pages live on where they are mapped.
class Pages {
 public:
  explicit Pages(CUmemGenericAllocationHandle handle) : handle_(handle) {}
  ~Pages() { driver().release(handle_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  CUmemGenericAllocationHandle handle() const { return handle_; }

 private:
  CUmemGenericAllocationHandle handle_;
};

/// Pages at an address of this process.
class Mapping {
 public:
  Mapping(const Pages& pages, size_t bytes, int device) : bytes_(bytes) {
    check(driver().reserve(&address_, bytes, 0, 0, 0), "cuMemAddressReserve");
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {device}},
                                 CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult status = driver().map(address_, bytes, 0, pages.handle(), 0);
    const char* call = "cuMemMap";
    mapped_ = status == CUDA_SUCCESS;
    if (mapped_) {
      status = driver().set_access(address_, bytes, &access, 1);
      call = "cuMemSetAccess";
    }
    if (status != CUDA_SUCCESS) close();
    check(status, call);
  }
  ~Mapping() {
    cudaDeviceSynchronize();  // a kernel may write there
    close();
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::byte* address() const { return reinterpret_cast<std::byte*>(address_); }

 private:
  void close() {
    if (mapped_) driver().unmap(address_, bytes_);
    driver().give_back(address_, bytes_);
  }
  size_t bytes_;
  CUdeviceptr address_ = 0;
  bool mapped_ = false;
};

class PeerMemory final : public PeerDevice {
 public:
  PeerMemory() {
    tensor::device_pool()->runtime().enter();
    check(cudaGetDevice(&device_), "cudaGetDevice");
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties_.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device_}};
    check(driver().granularity(&page_, &properties_, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
          "cuMemGetAllocationGranularity");
  }
  std::string problem(const std::string& address) const override {
    int peer = 0, reaches = 0;
    if (cudaDeviceGetByPCIBusId(&peer, address.c_str()) != cudaSuccess) {
      cudaGetLastError();
      return "this process does not see it (CUDA_VISIBLE_DEVICES?)";
    }
    check(cudaDeviceCanAccessPeer(&reaches, device_, peer), "cudaDeviceCanAccessPeer");
    return reaches ? "" : "no peer access";
  }
  ExportedMemory allocate(int64_t bytes) override {
    CUmemGenericAllocationHandle handle{};
    check(driver().create(&handle, whole_pages(bytes), &properties_, 0), "cuMemCreate");
    const Pages pages(handle);
    int file = -1;
    check(driver().export_handle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
          "cuMemExportToShareableHandle");
    ExportedMemory exported{nullptr, base::Descriptor(file)};
    exported.memory = mapped(pages, bytes);
    check(cudaMemset(exported.memory.get(), 0, static_cast<size_t>(bytes)), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return exported;
  }
  // The driver refuses to map more bytes than there are, or a part of them.
  std::shared_ptr<std::byte> map(int file, int64_t bytes) override {
    CUmemGenericAllocationHandle handle{};
    check(driver().import_handle(&handle, reinterpret_cast<void*>(static_cast<intptr_t>(file)),
                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
          "cuMemImportFromShareableHandle");
    const Pages pages(handle);
    return mapped(pages, bytes);
  }

 private:
  size_t whole_pages(int64_t bytes) const {
    return (static_cast<size_t>(bytes) + page_ - 1) / page_ * page_;
  }
  std::shared_ptr<std::byte> mapped(const Pages& pages, int64_t bytes) const {
    const auto mapping = std::make_shared<Mapping>(pages, whole_pages(bytes), device_);
    return {mapping, mapping->address()};
  }
  int device_ = 0;
  size_t page_ = 1;
  CUmemAllocationProp properties_{};
};

}  // namespace

std::unique_ptr<PeerDevice> open_peer_device() { return std::make_unique<PeerMemory>(); }

}  // namespace tessera::kernels
