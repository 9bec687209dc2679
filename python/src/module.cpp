#include <nanobind/nanobind.h>

#include <exception>
#include <string>

#include "model.h"
#include "requests.h"
#include "tessera/engine.h"

namespace nb = nanobind;

namespace {

// Raises an error of the library as the exception of tessera.errors for the error's code.
void raise(const tessera::Error& error) {
  const std::string text = error.what();
  const auto message =
      nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
  const nb::object raised = nb::module_::import_("tessera.errors")
                                .attr("error_of")(static_cast<int>(error.code()), message);
  PyErr_SetObject(raised.type().ptr(), raised.ptr());
}

}  // namespace

NB_MODULE(_core, module) {
  module.doc() = "The library's requests and models, as they are; use the package tessera.";
  module.attr("__version__") = tessera::kVersion;
  nb::register_exception_translator([](const std::exception_ptr& exception, void*) {
    try {
      std::rethrow_exception(exception);
    } catch (const tessera::Error& error) {
      raise(error);
    }
  });
  tessera::python::bind_requests(module);
  tessera::python::bind_model(module);
}
