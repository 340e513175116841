// Package verbs is a placeholder comment.
package verbs
