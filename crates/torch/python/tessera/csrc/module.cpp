// The module `_dispatcher`: the device of a program, and the executor of a slice server.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "program/client.h"
#include "program/generator.h"
#include "server/group.h"

namespace tessera {

namespace py = pybind11;

using Released = py::call_guard<py::gil_scoped_release>;

static const Transport* transport_at(uintptr_t address) { return reinterpret_cast<const Transport*>(address); }
// Of a connection, which lives longer than its use.
static const Transport* transport_of(const py::object& connection) { return transport_at(connection.attr("table").cast<uintptr_t>()); }

// One command without arguments, and its reply.
static py::bytes command(uint8_t code, const std::string& text, bool with_text) {
  Client::Use lock(client());
  client().not_in_graph("it asks the slice server");
  client().ready();
  put<uint8_t>(client().queue(), code);
  if (with_text) put_text(client().queue(), text);
  auto reply = client().ask(0, code == kSnapshot);
  return py::bytes(reply.take(0), reply.left());
}

// Calls Python from whatever thread of the program; what it raises reaches the program as it was raised.
static py::object call(const py::object& what, const py::tuple& arguments = py::tuple()) {
  if (PyObject* done = PyObject_CallObject(what.ptr(), arguments.ptr())) return py::reinterpret_steal<py::object>(done);
  python_error error;
  error.persist();
  throw error;
}

static void bind_program(py::module& m) {
  m.def("install", &install);
  // Called with Python's lock held, from whatever thread needs the server first.
  m.def("set_connector", [](py::object connector) {
    client().set_connector([connector = new py::object(std::move(connector))] {
      py::gil_scoped_acquire python;
      call(*connector);
    });
  });
  m.def("keep_journal", [](uint64_t most, py::object find_another, py::object safe) {
    client().keep_journal(
        most,
        [find = new py::object(std::move(find_another))](const std::string& why) {
          py::gil_scoped_acquire python;
          call(*find, py::make_tuple(why));
        },
        [safe = new py::object(std::move(safe))] {
          py::gil_scoped_acquire python;
          return call(*safe).cast<uint64_t>();
        });
  });
  m.def("resume", [](const py::object& connection, uint64_t memory, uint64_t sequence) {
    return client().resume(transport_of(connection), memory, sequence);
  });
  m.def("need", [] { Client::Use use(client()); });
  m.def("count_from", [](uint64_t operations) { client().count_from(operations); });
  m.def("is_forked", [] { return client().forked(); });
  m.def("connect", [](const py::object& connection, uint64_t memory, uint64_t sequence, bool fresh) {
    client().connect(transport_of(connection), memory, sequence, fresh);
  });
  m.def("disconnect", [](const std::string& why) { client().disconnect(why); });
  m.def("set_batch", [](int operations) { client().set_batch(operations); });
  m.def("set_libraries", [](std::vector<std::string> folders) { client().set_libraries(std::move(folders)); });
  m.def("finish", [] { client().finish(); });
  m.def("synchronize", [] {
    Client::Lock lock(client());
    client().synchronize();
  });
  m.def("status", [] { return command(kStatus, {}, false); });
  m.def("snapshot", [](const std::string& name) { command(kSnapshot, name, true); });
  m.def("get_random", [] { return py::bytes(random_state()); });
  m.def("set_random", &set_random_state);
  m.def("seed", [](uint64_t seed) { client().seed(seed); });
  m.def("memory", [] { return std::make_tuple(client().used(), client().peak.load(), client().limit()); });
  m.def("reset_peak", [] { client().peak = client().used(); });
  m.def("sequence", [] { return client().sequence(); });
  m.def("statistics", [] {
    auto& s = client().statistics;
    return py::dict(py::arg("operations") = s.operations, py::arg("frames") = s.frames, py::arg("bytes") = s.bytes, py::arg("waits") = s.waits, py::arg("replays") = s.replays,
                    py::arg("templates") = s.templates, py::arg("views") = s.views, py::arg("immediate") = s.immediate, py::arg("resumed") = s.resumed);
  });
}

static void bind_graphs(py::module& m) {
  py::class_<Recording, std::shared_ptr<Recording>>(m, "Recording")
      .def("replay", [](Recording& recording) { client().replay(recording); })
      .def("make_callable", [](Recording& recording, const std::vector<Tensor>& parameters, const std::vector<Tensor>& results) {
        client().make_callable(recording, parameters, results);
      })
      .def("call", [](Recording& recording, const std::vector<Tensor>& arguments) { return client().call(recording, arguments); })
      .def_property_readonly("operations", [](Recording& recording) { return recording.lines.size(); })
      .def_property_readonly("bytes", [](Recording& recording) { return recording.commands.size(); })
      .def_readonly("workspace", &Recording::workspace);
  m.def("stand_in", [](const Tensor& like) { return client().stand_in(like); });
  m.def("begin_capture", [] { client().begin_capture(); });
  m.def("end_capture", [] { return client().end_capture(); });
  m.def("abandon_capture", [] { client().abandon_capture(); });
  m.def("is_capturing", [] { return client().capturing(); });
  m.def("refuse", [](const std::string& why) { client().not_in_graph(why); });
  m.def("made_in_capture", [](const Tensor& tensor) { return client().made_in_capture(tensor.storage().unsafeGetStorageImpl()); });
}

// Python moves the tensors; what it raises means that another server is gone.
template <class Work>
static auto in_python(Work work) {
  py::gil_scoped_acquire python;
  try {
    return work();
  } catch (py::error_already_set& error) {
    throw Lost(py::str(error.value()).cast<std::string>());
  }
}

static Exchange exchange_of(py::object python) {
  auto* kept = new py::object(std::move(python));  // as long as the server
  Exchange made;
  made.pass = [=](const Tensor& tensor, int from, int to) { in_python([&] { kept->attr("pass_on")(tensor, from, to); }); };
  made.spread = [=](const std::vector<std::pair<Tensor, int>>& pieces) { in_python([&] { kept->attr("spread")(pieces); }); };
  made.sum = [=](const Tensor& tensor) { in_python([&] { kept->attr("sum")(tensor); }); };
  made.gather = [=](int64_t number) { return in_python([&] { return kept->attr("gather")(number).cast<std::vector<int64_t>>(); }); };
  made.reconsider = [=](const Work& work, bool fits) {
    return in_python([&] {
      auto choice = kept->attr("reconsider")(work.divisible, work.repeated, work.exchanged_bytes, work.exchanges, fits);
      return split_of(choice.cast<std::string>());
    });
  };
  made.begin = [=] { in_python([&] { kept->attr("begin")(); }); };
  made.divided = [=](const std::vector<double>& parts) { in_python([&] { kept->attr("divided")(parts); }); };
  return made;
}

static void bind_group(py::class_<Executor>& executor) {
  executor
      .def("join",
           [](Executor& e, int own, std::vector<uint64_t> memory, std::vector<double> rates, double part, bool alike, bool changes, const std::string& split,
              py::object exchange) {
             e.join(exchange_of(std::move(exchange)), {own, std::move(memory), std::move(rates), part, alike, changes}, split);
           })
      .def("lead", [](Executor& e, uintptr_t transport) { e.lead(transport_at(transport)); })
      .def("tell_gone", [](Executor& e) { e.tell_followers(kGone); }, Released())
      .def("tell_over", [](Executor& e) { e.tell_followers(kOver); }, Released())
      .def_property_readonly("over", &Executor::over)
      .def_property_readonly(
          "lost", [](Executor& e) { return e.group() && !e.group()->lost.empty() ? e.group()->lost : e.broken_device(); })
      .def_readwrite("about", &Executor::about)
      .def_readwrite("comes_again", &Executor::comes_again);
}

static void bind_snapshots(py::class_<Executor>& executor) {
  using Row = std::tuple<uint64_t, uint64_t, int, uint64_t, int64_t, int64_t>;
  executor.def("quiesce", &Executor::quiesce, Released())
      .def("holdings",
           [](Executor& e) {
             std::vector<Row> rows;
             for (auto& h : e.holdings()) rows.emplace_back(h.id, h.bytes, h.kind, h.holders, h.units, h.rows);
             return rows;
           })
      .def("fetch", &Executor::fetch, Released())
      .def(
          "hold",
          [](Executor& e, uint64_t id, uint64_t bytes, int kind, uint64_t holders, int64_t units, int64_t rows) {
            e.hold({id, bytes, static_cast<Holding::Kind>(kind), holders, units, rows});
          },
          Released())
      .def("store", &Executor::store, Released())
      .def("restored", &Executor::restored, Released())
      .def_property_readonly("divided", [](Executor& e) {
        // How many slices share the work, how, and which of them is the fastest, the next and so on: by that storages get their places.
        if (auto* group = e.group()) return std::make_tuple(group->size(), name_of(group->split()), group->fastest_first());
        return std::make_tuple(1, std::string("one"), std::vector<int>{0});
      });
}

static void bind_server(py::module& m) {
  py::class_<Executor> executor(m, "Executor");
  bind_group(executor);
  bind_snapshots(executor);
  executor.def(py::init([](const std::string& device, uint64_t memory, uintptr_t gate, bool gated, int threads) {
             return new Executor(c10::Device(device), memory, reinterpret_cast<const Gate*>(gate), gated, threads);
           }))
      .def("serve", [](Executor& e, uintptr_t transport) { return e.serve(transport_at(transport)); }, Released())
      .def("take_snapshot", &Executor::take_snapshot)
      .def("answer_snapshot",
           [](Executor& e, uintptr_t transport, const std::string& error) { e.answer_snapshot(transport_at(transport), error); }, Released())
      .def_property_readonly("device", [](Executor& e) { return e.device().str(); })
      .def("forget_connection", &Executor::forget_connection)
      .def_property(
          "untold", [](Executor& e) { return py::bytes(e.untold()); }, [](Executor& e, const std::string& text) { e.set_untold(text); })
      .def_property("answered_bulk", [](Executor& e) { return e.answered_bulk(); }, &Executor::set_answered_bulk)
      .def_readwrite("sequence", &Executor::sequence)
      .def_readwrite("operations", &Executor::operations)
      .def_property_readonly("used", &Executor::held)
      .def_property_readonly("meters",
                             [](Executor& e) {
                               auto& m = e.meters;
                               return py::dict(py::arg("device_seconds") = m.computed * 1e-9, py::arg("gate_seconds") = m.waited * 1e-9, py::arg("bytes") = m.bytes.load(),
                                               py::arg("operations") = m.operations.load(), py::arg("memory_used") = m.held.load(),
                                               py::arg("queued_bytes") = m.queued.load());
                             })
      .def_readonly("peak", &Executor::peak);
}

}  // namespace tessera

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  // Errors of PyTorch's own kinds reach Python as those.
  pybind11::register_local_exception_translator([](std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (torch::PyTorchError& e) {
      torch::translate_exception_to_python(error);
    } catch (python_error& e) {
      e.restore();
    } catch (const c10::Error& e) {
      torch::translate_exception_to_python(error);
    }
  });
  tessera::bind_program(m);
  tessera::bind_graphs(m);
  tessera::bind_server(m);
}
