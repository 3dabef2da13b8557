#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/core/temp_dir.h"
#include "tests/support/run_command.h"

namespace weft::serve::test {

/// Certificates made by the openssl command, in a folder that goes with them. One that clients are
/// told to trust vouches for a second, and that for the server's of localhost and 127.0.0.1.
class Certificates {
 public:
  Certificates() {
    folder_.write("openssl.cnf",
                  "[req]\ndistinguished_name = name\n[name]\n"
                  "[authority]\nbasicConstraints = critical,CA:TRUE\n"
                  "[server]\nsubjectAltName = DNS:localhost,IP:127.0.0.1\n");
    make("root", "authority", {});
    make("middle", "authority", signed_by("root"));
    renew();
  }

  /// Makes another certificate and key of the server, over the former.
  void renew() {
    make("server", "server", signed_by("middle"));
    folder_.write("chain.pem", folder_.read("server.pem") + folder_.read("middle.pem"));
  }

  std::string at(const std::string& name) const { return folder_.at(name); }
  std::string read(const std::string& name) const { return folder_.read(name); }
  std::string write(const std::string& name, const std::string& text) const {
    return folder_.write(name, text);
  }
  /// What clients trust.
  std::string root() const { return at("root.pem"); }
  /// The server's certificate and the one that vouches for it; without that; and the key.
  std::string chain() const { return at("chain.pem"); }
  std::string server() const { return at("server.pem"); }
  std::string key() const { return at("server.key"); }

  static void openssl(std::vector<std::string> args) {
    args.insert(args.begin(), "openssl");
    const weft::test::CommandResult result = weft::test::run_command(args);
    if (result.status != 0) ADD_FAILURE() << result.err;
  }

 private:
  std::vector<std::string> signed_by(const std::string& name) const {
    return {"-CA", at(name + ".pem"), "-CAkey", at(name + ".key")};
  }
  void make(const std::string& name, const std::string& kind,
            const std::vector<std::string>& signer) const {
    std::vector<std::string> args = {"req",
                                     "-x509",
                                     "-newkey",
                                     "ec",
                                     "-pkeyopt",
                                     "ec_paramgen_curve:P-256",
                                     "-nodes",
                                     "-days",
                                     "2",
                                     "-subj",
                                     "/CN=" + name,
                                     "-config",
                                     at("openssl.cnf"),
                                     "-extensions",
                                     kind,
                                     "-keyout",
                                     at(name + ".key"),
                                     "-out",
                                     at(name + ".pem")};
    args.insert(args.end(), signer.begin(), signer.end());
    openssl(args);
  }

  testing::TempDir folder_;
};

}  // namespace weft::serve::test
