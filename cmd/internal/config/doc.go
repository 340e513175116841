// Package config reads the configuration files of the daemons: YAML, one mapping of settings to
// single values. The settings are those that a command has as flags, under the same names, and their values are
// checked by the flags; this package knows the form only.
package config
