package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sheaf"
	"sheaf/internal/retryafter"
)

// Caller posts to users' services and reads their responses. It is safe for
// concurrent use.
type Caller struct {
	allowed Hosts
	nets    []netip.Prefix // whose addresses may be called on any port
	private []netip.Prefix // whose addresses may be called although they are not public
	secret  string
	client  *http.Client
}

// Call is a request to a service.
type Call struct {
	URL       string
	ID        string // the same in each attempt, so that a service can repeat its response
	Body      []byte // JSON
	MaxAnswer int64  // bytes
}

// NewCaller returns a Caller that only calls the given hosts: names, name:port,
// addresses and networks such as 10.1.0.0/16. A non-public address is called only
// if it, or its network, is listed, because otherwise a name could resolve to it.
// secret signs requests like webhooks. The error is sheaf.ErrInvalid.
func NewCaller(hosts []string, secret string) (*Caller, error) {
	c := &Caller{secret: secret}
	for _, h := range hosts {
		if p, err := netip.ParsePrefix(h); err == nil {
			c.nets, c.private = append(c.nets, p.Masked()), append(c.private, p.Masked())
			continue
		}
		host := h
		if name, _, err := net.SplitHostPort(h); err == nil {
			host = name
		}
		if host == "" || strings.ContainsAny(h, "/@ ") {
			return nil, fmt.Errorf("%w: %q is no host: write name, name:port, an address, or a network such as 10.1.0.0/16", sheaf.ErrInvalid, h)
		}
		if a, err := netip.ParseAddr(host); err == nil {
			a = a.Unmap()
			c.private = append(c.private, netip.PrefixFrom(a, a.BitLen()))
		}
		c.allowed = append(c.allowed, h)
	}
	if len(hosts) > 0 {
		if err := CheckSecret(secret); err != nil {
			return nil, err
		}
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second, Control: c.control}
	c.client = &http.Client{
		// Without a proxy, which would resolve the name where control does not see it.
		Transport:     &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: 10 * time.Second, ForceAttemptHTTP2: true, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// errPrivate is a connection to an address that was not allowed.
type errPrivate struct{ addr netip.Addr }

func (e errPrivate) Error() string {
	return fmt.Sprintf("%s is not public and is not named in flow.allow_hosts", e.addr)
}

// control checks the address of each connection after name resolution, so that DNS
// rebinding does not matter.
func (c *Caller) control(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	a := at.Addr().Unmap()
	if public(a) || within(c.private, a) {
		return nil
	}
	return errPrivate{a}
}

func within(nets []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(nets, func(p netip.Prefix) bool { return p.Contains(a) })
}

// notPublic are networks that netip has no predicate for: carrier-grade NAT (RFC
// 6598), protocol assignments (RFC 6890), benchmarking (RFC 2544), reserved, and
// IPv6 that embeds IPv4 (RFC 6052, RFC 8215, RFC 4380, RFC 3056), which may be any
// of the others.
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"), netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("2001::/32"), netip.MustParsePrefix("2002::/16"),
}

func public(a netip.Addr) bool {
	if !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() {
		return false
	}
	return !within(notPublic, a)
}

// Check rejects an address that may not be called, with an explanation.
func (c *Caller) Check(address string) (host string, err error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return "", errors.New("it is http:// or https:// with a host, without a name, password or fragment")
	}
	if c == nil {
		return u.Host, fmt.Errorf("services may not be called: name %s in flow.allow_hosts of the executors", u.Host)
	}
	plain := *u // an IPv4-mapped IPv6 address counts as IPv4
	if a, err := netip.ParseAddr(u.Hostname()); err == nil {
		if within(c.nets, a.Unmap()) {
			return u.Host, nil
		}
		if plain.Host = a.Unmap().String(); a.Unmap().Is6() {
			plain.Host = "[" + plain.Host + "]"
		}
		if u.Port() != "" {
			plain.Host += ":" + u.Port()
		}
	}
	if c.allowed.Allow(&plain) {
		return u.Host, nil
	}
	return u.Host, fmt.Errorf("%s may not be called: name it in flow.allow_hosts of the executors", u.Host)
}

// Post sends a call and returns the body of a 2xx response; nil if it is empty. ctx
// bounds it. The failures are service_not_allowed, service_redirects,
// service_answer_too_large and service_refused, which are permanent, and
// service_unavailable, with sheaf.ErrUnavailable or a *sheaf.RateLimited.
func (c *Caller) Post(ctx context.Context, call Call) ([]byte, error) {
	host, err := c.Check(call.URL)
	if err != nil {
		return nil, sheaf.Fail(sheaf.CategoryPolicy, "service_not_allowed", "The address of the service: %v.", err)
	}
	now := time.Now()
	signature, err := Sign(c.secret, call.ID, now, call.Body)
	if err != nil {
		return nil, sheaf.Fail(sheaf.CategoryPolicy, "service_not_allowed", "flow.secret cannot sign: %v", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, call.URL, bytes.NewReader(call.Body))
	if err != nil {
		return nil, sheaf.Fail(sheaf.CategoryPolicy, "service_not_allowed", "The address of the service cannot be requested; correct the url of the node.")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "sheaf-flow/1")
	req.Header.Set(HeaderID, call.ID)
	req.Header.Set(HeaderTimestamp, strconv.FormatInt(now.Unix(), 10))
	req.Header.Set(HeaderSignature, signature)
	resp, err := c.client.Do(req)
	if err != nil {
		if private, ok := errors.AsType[errPrivate](err); ok {
			return nil, sheaf.Fail(sheaf.CategoryPolicy, "service_not_allowed", "%s leads to an address that is not public. Add %s to flow.allow_hosts on the executors to allow it.", host, private.addr)
		}
		return nil, unavailable(ctx, host, "gives no answer", err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode/100 == 3:
		return nil, sheaf.Fail(sheaf.CategoryPolicy, "service_redirects", "%s answers %s. Redirects are not followed: set the final address.", host, resp.Status)
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable:
		f := unavailable(ctx, host, "answers "+resp.Status, nil)
		if after := retryafter.Parse(resp.Header.Get("Retry-After"), now); after > 0 {
			return nil, fmt.Errorf("%w (%w)", f, &sheaf.RateLimited{After: min(after, time.Hour)})
		}
		return nil, f
	case resp.StatusCode/100 == 5 || resp.StatusCode == http.StatusRequestTimeout:
		return nil, unavailable(ctx, host, "answers "+resp.Status, nil)
	case resp.StatusCode/100 != 2:
		return nil, sheaf.Fail(sheaf.CategoryPolicy, "service_refused", "%s answers %s: %s", host, resp.Status, said(resp.Body))
	case resp.ContentLength > call.MaxAnswer:
		return nil, tooLarge(host, call.MaxAnswer)
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, call.MaxAnswer+1))
	if err != nil {
		return nil, unavailable(ctx, host, "breaks off its answer", err)
	}
	if int64(len(answer)) > call.MaxAnswer {
		return nil, tooLarge(host, call.MaxAnswer)
	}
	if len(bytes.TrimSpace(answer)) == 0 {
		return nil, nil
	}
	return answer, nil
}

func tooLarge(host string, most int64) error {
	return sheaf.Fail(sheaf.CategoryPolicy, "service_answer_too_large", "%s answers with more than %d MB. Give the node a smaller batch, or let the service answer with what it changes.", host, most>>20)
}

// unavailable is the failure of a service that may respond later. It includes err
// without the URL, which may contain a token.
func unavailable(ctx context.Context, host, what string, err error) error {
	category := sheaf.CategoryTarget
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		category, err = sheaf.CategoryTimeout, errors.New("its time is over")
	}
	if err != nil {
		what += ": " + err.Error()
	}
	return fmt.Errorf("%w (%w)", sheaf.FailRetryable(category, "service_unavailable", "%s %s", host, what), sheaf.ErrUnavailable)
}

// said is the beginning of a service's response, on one line.
func said(r io.Reader) string {
	b, _ := io.ReadAll(io.LimitReader(r, 400)) // whatever was received
	s := strings.Join(strings.Fields(strings.ToValidUTF8(string(b), "")), " ")
	if s == "" {
		return "and says no more"
	}
	return s
}
