package redis

type scripts struct{}
