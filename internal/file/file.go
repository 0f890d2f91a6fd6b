// Package file reads what a flag or a setting names: a file of limits, a certificate, a key.
package file

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// MaxBytes is the size of the largest file that is read.
const MaxBytes = 64 << 20

// Read returns what a regular file contains, or a link to one. It refuses all else: a pipe
// would wait for its writer, and a device may have no end. So the file is opened without
// waiting, and what was opened is looked at, not the name. A file that grows meanwhile is
// read as long as it was, and one that shrinks is an error.
func Read(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	//mutant:regular-files-only
	case !info.Mode().IsRegular():
		return nil, &os.PathError{Op: "read", Path: name, Err: errors.New("not a regular file")}
	//mutant:bounded-files
	case info.Size() > MaxBytes:
		return nil, &os.PathError{Op: "read", Path: name, Err: fmt.Errorf("more than %d bytes", MaxBytes)}
	}
	data := make([]byte, info.Size())
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, &os.PathError{Op: "read", Path: name, Err: err}
	}
	return data, nil
}

// KeyPair returns the certificate of a PEM file with the key of another.
func KeyPair(cert, key string) (tls.Certificate, error) {
	certPEM, err := Read(cert)
	if err != nil {
		return tls.Certificate{}, err
	}
	keyPEM, err := Read(key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(certPEM, keyPEM)
}

// Authorities returns the certificates of a PEM file.
func Authorities(name string) (*x509.CertPool, error) {
	pem, err := Read(name)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate in PEM", name)
	}
	return pool, nil
}
