#include "gateway/config_toml.h"

#include <cstdio>
#include <cstring>
#include <sstream>
#include <string>
#include <toml++/toml.h>

namespace
{

bool is_leaf_table(const std::string &path)
{
    /* tables whose keys are names chosen by the user, not options */
    return path == "docker.sandbox_env";
}

void quote(std::ostream &out, std::string_view s)
{
    toml::table t;
    t.insert("k", s);
    std::ostringstream text;
    text << toml::json_formatter{ t };
    std::string j = text.str(); /* {"k" : "..."}: the library escapes */
    size_t from = j.find('"', j.find(':'));
    out << j.substr(from, j.rfind('"') - from + 1);
}

void value(std::ostream &out, const toml::node &n)
{
    if (const auto *s = n.as_string()) {
        quote(out, s->get());
    } else if (const auto *b = n.as_boolean()) {
        out << (b->get() ? "true" : "false");
    } else if (const auto *i = n.as_integer()) {
        out << i->get();
    } else if (const auto *f = n.as_floating_point()) {
        char text[40];
        std::snprintf(text, sizeof(text), "%.17g", f->get());
        out << (std::strspn(text, "0123456789.e+-") == std::strlen(text) ? text : "null");
    } else if (const auto *a = n.as_array()) {
        const char *sep = "";
        out << "[";
        for (const auto &item : *a) {
            out << sep;
            value(out, item);
            sep = ",";
        }
        out << "]";
    } else if (const auto *t = n.as_table()) {
        const char *sep = "";
        out << "{";
        for (const auto &[k, v] : *t) {
            out << sep;
            quote(out, k.str());
            out << ":";
            value(out, v);
            sep = ",";
        }
        out << "}";
    } else {
        throw std::runtime_error("dates and times are not used by any option");
    }
}

void walk(std::ostream &out, const toml::table &t, const std::string &path, bool &first)
{
    for (const auto &[k, v] : t) {
        std::string at = path.empty() ? std::string(k.str()) : path + "." + std::string(k.str());
        const auto *sub = v.as_table();
        if (sub && !is_leaf_table(at)) {
            walk(out, *sub, at, first);
            continue;
        }
        out << (first ? "" : ",") << "{\"key\":";
        quote(out, at);
        out << ",\"line\":" << k.source().begin.line << ",\"value\":";
        value(out, v);
        out << "}";
        first = false;
    }
}

} // namespace

extern "C" char *config_toml_to_json(const char *text, size_t len, char *err_text, size_t err_len)
{
    try {
        toml::table t = toml::parse(std::string_view(text, len));
        std::ostringstream out;
        bool first = true;
        out << "[";
        walk(out, t, "", first);
        out << "]";
        return strdup(out.str().c_str());
    } catch (const toml::parse_error &e) {
        std::snprintf(err_text, err_len, "line %u: %s", unsigned(e.source().begin.line),
                      std::string(e.description()).c_str());
    } catch (const std::exception &e) {
        std::snprintf(err_text, err_len, "%s", e.what());
    }
    return nullptr;
}
